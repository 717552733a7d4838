// Case A24: an MLA cache with an indexer has two regions per layer, 576 bfloat16 and 132 opaque
// bytes per token. Each region is a frame with its own shape and type; both come back bit for bit.
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "kvserve/codec.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

constexpr std::size_t kLayers = 61;
constexpr TokenRange kTokens{0, 256};

struct Region {
  std::uint32_t dim;
  DType dtype;
};
constexpr Region kRegions[] = {{576, DType::kBFloat16}, {132, DType::kUint8}};

KvBuffer MakeRegion(const Region& region) {
  const KvGeometry geometry = testing::MakeGeometry(
      region.dtype, std::vector<testing::LayerShape>(kLayers, {1, region.dim, 0}));
  return testing::MakeRandomBits(geometry, kTokens, region.dim);
}

TEST(IndexerCache, BothRegionsOfEveryLayerComeBackBitForBit) {
  for (const char* text : {"lossless", "none", "none|zstd", "none|lz4"}) {
    const Profile profile = ParseProfile(text).value();
    std::vector<std::byte> frames;
    for (const Region& region : kRegions) {
      const KvBuffer chunk = MakeRegion(region);
      EXPECT_EQ(RawBytes(chunk.view()),
                kLayers * kTokens.size() * region.dim * DTypeBytes(region.dtype));
      ASSERT_TRUE(EncodeFrame(chunk.view(), profile, {}, frames)) << text;
    }
    std::span<const std::byte> rest = frames;
    for (const Region& region : kRegions) {
      KvBuffer decoded;
      const auto length = DecodeFrame(rest, {}, decoded);
      ASSERT_TRUE(length.has_value()) << text << ": " << length.error().message;
      const KvBuffer chunk = MakeRegion(region);
      ASSERT_EQ(decoded.view().layers.size(), kLayers);
      EXPECT_EQ(testing::Difference(chunk.view(), std::as_const(decoded).view()), "") << text;
      rest = rest.subspan(*length);
    }
    EXPECT_TRUE(rest.empty());
  }
}

TEST(IndexerCache, OpaqueBytesAreNeverComputedWith) {
  const KvBuffer chunk = MakeRegion(kRegions[1]);
  for (const char* text : {"uniform|none", "hadamard|uniform|rans", "fp8|none"}) {
    std::vector<std::byte> frame;
    const auto status = EncodeFrame(chunk.view(), ParseProfile(text).value(), {}, frame);
    ASSERT_FALSE(status.has_value()) << text;
    EXPECT_NE(status.error().message.find("uint8"), std::string::npos) << status.error().message;
    EXPECT_TRUE(frame.empty());
  }
}

}  // namespace
}  // namespace kvserve
