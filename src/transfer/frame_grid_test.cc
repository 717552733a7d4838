#include "transfer/frame_grid.h"

#include <gtest/gtest.h>

namespace kvserve {
namespace {

KvGeometry Layers(std::size_t count) {
  KvGeometry geometry;
  geometry.layers.assign(count, {.kv_heads = 2, .k_dim = 8, .v_dim = 8});
  return geometry;
}

TEST(FrameGrid, CutsAtMultiplesOfTokensAndLayers) {
  const KvGeometry geometry = Layers(5);
  const auto grid = FrameGrid::Create(geometry, 70, 32, 2).value();
  EXPECT_EQ(grid.frames(), 9U);
  EXPECT_EQ(grid.groups(), 3U);
  const auto last = grid.At(8);
  EXPECT_EQ(last.tokens, (TokenRange{64, 70}));
  EXPECT_EQ(last.first_layer, 4U);
  EXPECT_EQ(last.layers, 1U);
  EXPECT_EQ(grid.At(4).tokens, (TokenRange{32, 64}));
  EXPECT_EQ(grid.At(4).first_layer, 2U);
  EXPECT_EQ(grid.RawBytes(8), 6U * 2 * 16 * 2);
  EXPECT_EQ(grid.CountWanted(0), 9U);
  EXPECT_EQ(grid.CountWanted(63), 6U);
  EXPECT_EQ(grid.CountWanted(64), 3U);
}

TEST(FrameGrid, FramesBeforeEveryWindowHoldNothing) {
  KvGeometry geometry = Layers(3);
  geometry.layers[1].window_tokens = 10;
  const auto apart = FrameGrid::Create(geometry, 100, 32, 1).value();
  EXPECT_EQ(apart.CountWanted(0), 4 + 2 + 4U);  // tokens 90 to 99 lie in the last two
  EXPECT_FALSE(apart.IsWanted(1, 0));
  EXPECT_TRUE(apart.IsWanted(7, 0));
  EXPECT_FALSE(apart.IsWanted(7, 96));
  EXPECT_EQ(apart.RawBytes(1), 0U);
  const auto together = FrameGrid::Create(geometry, 100, 32, 0).value();
  EXPECT_EQ(together.CountWanted(0), 4U);
  EXPECT_EQ(together.layers_per_frame(), 3U);
  EXPECT_EQ(together.Held(2)[1].tokens, (TokenRange{90, 96}));
}

TEST(FrameGrid, RefusesWhatItCannotCut) {
  const KvGeometry geometry = Layers(4096);
  EXPECT_EQ(FrameGrid::Create(geometry, 0, 32, 1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(FrameGrid::Create(geometry, 10, 0, 1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(FrameGrid::Create(geometry, kMaxTokens, 1, 1).error().code,
            ErrorCode::kResourceExhausted);
  const auto whole = FrameGrid::Create(geometry, kMaxTokens, 65536, UINT32_MAX).value();
  EXPECT_EQ(whole.frames(), 256U);
  EXPECT_EQ(whole.At(255).tokens.end, kMaxTokens);
}

}  // namespace
}  // namespace kvserve
