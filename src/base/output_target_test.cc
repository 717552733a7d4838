#include "base/output_target.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace kvserve {
namespace {

TEST(OutputTarget, OnlyRegularFilesAreReplaced) {
  const std::filesystem::path folder = ::testing::TempDir() + "/kvserve-output-target";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string fifo = folder / "pipe";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {std::string(), std::string("/dev/null"), fifo, folder.string()}) {
    const auto target = ResolveOutputTarget(path);
    ASSERT_FALSE(target.has_value()) << path;
    EXPECT_EQ(target.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(ResolveOutputTarget(folder / "new").value(), folder / "new");
  std::ofstream(folder / "file") << "x";
  std::filesystem::create_symlink(folder / "file", folder / "link");
  EXPECT_EQ(ResolveOutputTarget(folder / "link").value(),
            std::filesystem::canonical(folder / "file"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kvserve
