// Data that no codec can shrink.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "frame/frame.h"
#include "kvserve/codec.h"
#include "pipeline/testing/chunk.h"
#include "stages/registry.h"
#include "stages/testing/frames.h"

namespace kvserve {
namespace {

// 1 MiB of random bytes: every codec stores them, in a few bytes more than they are.
TEST(Incompressible, RandomBytesDoNotGrow) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  constexpr std::size_t kHeaderBytes = 200;
  const auto geometry = testing::MakeGeometry(DType::kFloat16, {{8, 128, 128}});
  const KvBuffer chunk = testing::MakeRandomBits(geometry, {0, 256});
  ASSERT_EQ(RawBytes(chunk.view()), kBytes);
  for (const StageEntry& entry : BuiltinStages()) {
    if (entry.info->kind != StageKind::kCodec) continue;
    const std::string text = "none|" + std::string(entry.info->name);
    std::vector<std::byte> frame;
    ASSERT_TRUE(testing::EncodeSample(chunk.view(), ParseProfile(text).value(), frame)) << text;
    EXPECT_LE(frame.size(), kBytes + kHeaderBytes) << text;
    KvBuffer out;
    ASSERT_TRUE(testing::DecodeSample(frame, out)) << text;
    EXPECT_EQ(testing::Difference(chunk.view(), std::as_const(out).view()), "") << text;
  }
}

// Neither do frames of one token, where tables and pieces would weigh most.
TEST(Incompressible, AFewTokensDoNotGrow) {
  constexpr std::size_t kHeaderBytes = 200;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    const auto geometry = testing::MakeGeometry(dtype, {{3, 64, 64}, {1, 576, 0}, {8, 128, 128}});
    for (const std::uint32_t tokens : {1U, 2U, 5U}) {
      const KvBuffer chunk = testing::MakeRandomBits(geometry, {7, 7 + tokens});
      for (const StageEntry& entry : BuiltinStages()) {
        if (entry.info->kind != StageKind::kCodec) continue;
        const std::string text = "none|" + std::string(entry.info->name);
        std::vector<std::byte> frame;
        ASSERT_TRUE(testing::EncodeSample(chunk.view(), ParseProfile(text).value(), frame)) << text;
        EXPECT_LE(frame.size(), RawBytes(chunk.view()) + kHeaderBytes) << text << " " << tokens;
      }
    }
  }
}

// The form is flagged: a codec that keeps data as they are adds a byte.
TEST(Incompressible, Lz4AndZstdStoreAsTheyAre) {
  const auto geometry = testing::MakeGeometry(DType::kFloat16, {{8, 128, 128}});
  const KvBuffer chunk = testing::MakeRandomBits(geometry, {0, 256});
  for (const char* text : {"none|lz4", "none|zstd"}) {
    std::vector<std::byte> frame;
    ASSERT_TRUE(EncodeFrame(chunk.view(), ParseProfile(text).value(), {}, frame)) << text;
    const FrameView parsed = ReadFrame(frame).value();
    ASSERT_EQ(parsed.sections.size(), 1U) << text;
    EXPECT_EQ(parsed.sections[0].bytes.size(), RawBytes(chunk.view()) + 1) << text;
    EXPECT_EQ(parsed.sections[0].bytes.front(), std::byte{0}) << text;
  }
}

}  // namespace
}  // namespace kvserve
