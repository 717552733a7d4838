#include "base/token_slice.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

namespace kvserve {
namespace {

// Layer 0 holds tokens 0..9, layer 1 the last 4 of them; every element is its byte index in its
// plane.
KvBuffer Numbered() {
  KvGeometry geometry;
  geometry.layers = {{.kv_heads = 2, .k_dim = 3, .v_dim = 5},
                     {.kv_heads = 1, .k_dim = 2, .v_dim = 0, .window_tokens = 4}};
  KvBuffer buffer;
  EXPECT_TRUE(buffer.Resize(geometry, {0, 10}, 10));
  for (const auto& layer : buffer.view().layers) {
    for (const PlaneView& plane : {layer.k, layer.v}) {
      for (std::uint64_t i = 0; plane.data != nullptr && i < plane.values(); ++i) {
        const auto number = static_cast<std::uint16_t>(i);
        std::memcpy(plane.data + 2 * i, &number, 2);
      }
    }
  }
  return buffer;
}

std::uint16_t Number(const std::byte* element) {
  std::uint16_t number = 0;
  std::memcpy(&number, element, 2);
  return number;
}

TEST(SliceTokens, StartsAtTheTokensRow) {
  const KvBuffer buffer = Numbered();
  const ConstKvView slice = SliceTokens(buffer.view(), {7, 9});
  ASSERT_TRUE(CheckView(slice));
  EXPECT_EQ(slice.layers[0].tokens, (TokenRange{7, 9}));
  EXPECT_EQ(Number(slice.layers[0].k.data), 7 * 6);
  EXPECT_EQ(Number(slice.layers[0].v.at(1, 1, 4)), 8 * 10 + 9);
  EXPECT_EQ(slice.layers[1].tokens, (TokenRange{7, 9}));
  EXPECT_EQ(Number(slice.layers[1].k.data), 2) << "the window starts at token 6";
  EXPECT_EQ(RawBytes(slice), 2 * (2 * 16 + 2 * 2));
}

TEST(SliceTokens, OfAWindowLayerMayBeEmptyOrPart) {
  const KvBuffer buffer = Numbered();
  const ConstKvView before = SliceTokens(buffer.view(), {2, 5});
  ASSERT_TRUE(CheckView(before));
  EXPECT_EQ(before.layers[1].tokens, (TokenRange{5, 5}));
  const ConstKvView across = SliceTokens(buffer.view(), {4, 8});
  ASSERT_TRUE(CheckView(across));
  EXPECT_EQ(across.layers[1].tokens, (TokenRange{6, 8}));
  EXPECT_EQ(Number(across.layers[1].k.data), 0);
}

}  // namespace
}  // namespace kvserve
