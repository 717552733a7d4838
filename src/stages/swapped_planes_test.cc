// K and V may have different precision, and a frame whose K and V have changed places is refused
// (A04).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "frame/frame.h"
#include "kvserve/codec.h"
#include "pipeline/testing/chunk.h"
#include "stages/testing/frames.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kTokens = 64;
constexpr std::size_t kColumns = 2 * 32;

class SwappedPlanes : public ::testing::TestWithParam<std::string> {
 protected:
  SwappedPlanes()
      : geometry_(testing::MakeGeometry(DType::kFloat16, {{2, 32, 32}, {2, 32, 32}})),
        chunk_(testing::MakeChunk(geometry_, {16, 16 + kTokens})) {
    EXPECT_TRUE(testing::EncodeSample(std::as_const(chunk_).view(),
                                      ParseProfile(GetParam()).value(), frame_));
  }

  // Offset of a section within the frame.
  [[nodiscard]] std::size_t Offset(SectionKind kind) const {
    const FrameView view = ReadFrame(frame_).value();
    for (const Section& section : view.sections) {
      if (section.kind == kind)
        return static_cast<std::size_t>(section.bytes.data() - frame_.data());
    }
    ADD_FAILURE() << "no section " << SectionName(kind);
    return 0;
  }
  // Exchanges K and V of layer 0, `bytes` each.
  void Swap(std::size_t first, std::size_t bytes) {
    const auto at = frame_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto size = static_cast<std::ptrdiff_t>(bytes);
    std::swap_ranges(at, at + size, at + size);
  }
  [[nodiscard]] Status Decoded() {
    KvBuffer out;
    const auto length = testing::DecodeSample(frame_, out);
    return length ? Status() : tl::unexpected(length.error());
  }

  KvGeometry geometry_;
  KvBuffer chunk_;
  std::vector<std::byte> frame_;
};

TEST_P(SwappedPlanes, A04ChangeTheChecksumOfTheSymbols) {
  const auto before = ReadFrame(frame_).value();
  Swap(Offset(SectionKind::kSymbols), kTokens * kColumns);
  const auto status = Decoded();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(status.error().message, HasSubstr("symbols"));
  // The sections of the changed frame have another checksum, not a collision.
  std::vector<std::byte> sealed;
  std::vector<Section> sections = before.sections;
  ASSERT_TRUE(WriteFrame(before.header, sections, sealed));
  EXPECT_NE(ReadFrame(sealed).value().section_checksums, before.section_checksums);
}

// With checksums that fit, so by whoever writes frames: levels of K and V tell them apart.
TEST_P(SwappedPlanes, A04AreRefusedByTheirAlphabetsEvenIfSealedAgain) {
  const auto parsed = ReadFrame(frame_).value();
  Swap(Offset(SectionKind::kSymbols), kTokens * kColumns);
  std::vector<std::byte> sealed;
  ASSERT_TRUE(WriteFrame(parsed.header, parsed.sections, sealed));
  frame_ = std::move(sealed);
  const auto status = Decoded();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
}

TEST_P(SwappedPlanes, A04SideBytesChangeTheChecksumToo) {
  const std::size_t side = Offset(SectionKind::kSide);
  Swap(side + 4, 40);
  const auto status = Decoded();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
}

INSTANTIATE_TEST_SUITE_P(Profiles, SwappedPlanes,
                         ::testing::Values("uniform:k_levels=16,v_levels=8|none",
                                           "hadamard|mixed:k_levels=30,v_levels=5|none"));

}  // namespace
}  // namespace kvserve
