// Frames of releases: every folder v<N> holds frames and decoded.txt as that release wrote them,
// and they keep decoding to the same values. Nothing here is ever recorded anew; a release adds a
// folder.
#include <gtest/gtest.h>

#include <filesystem>

#include "golden/frame_files.h"

namespace kvserve {
namespace {

std::filesystem::path Folder() {
  return KVSERVE_COMPAT_DIR;
}

void CheckRelease(const std::filesystem::path& release) {
  const auto digests = testing::ReadDigests(release / "decoded.txt");
  ASSERT_FALSE(digests.empty()) << release.filename();
  for (const auto& [name, digest] : digests) {
    const auto frame = testing::ReadBytes(release / (name + ".kvs"));
    KvBuffer buffer;
    const auto decoded = testing::DecodeRecorded(frame, release, buffer);
    ASSERT_TRUE(decoded) << name << ": " << decoded.error().message;
    EXPECT_EQ(*decoded, frame.size()) << name;
    EXPECT_EQ(testing::DecodedDigest(std::as_const(buffer).view()), digest) << name;
  }
}

TEST(Compat, FramesOfEveryReleaseDecode) {
  int releases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    if (!entry.is_directory()) continue;
    ++releases;
    CheckRelease(entry.path());
  }
  EXPECT_GE(releases, 1);
}

}  // namespace
}  // namespace kvserve
