#include "calibration/token_slice.h"

#include <gtest/gtest.h>

#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

using testing::MakeChunk;
using testing::MakeGeometry;
using testing::PlaneValues;

TEST(TokenSlice, HoldsTheValuesOfItsTokens) {
  const auto geometry =
      MakeGeometry(DType::kFloat16, {{.heads = 2, .k_dim = 8, .v_dim = 4},
                                     {.heads = 1, .k_dim = 4, .v_dim = 4, .window_tokens = 5},
                                     {.heads = 1, .k_dim = 6, .v_dim = 0}});
  const KvBuffer chunk = MakeChunk(geometry, {10, 26});
  const auto whole = chunk.view();
  for (const TokenRange part : {TokenRange{10, 26}, {10, 13}, {13, 23}, {22, 26}, {26, 26}}) {
    const auto slice = SliceTokens(whole, part);
    ASSERT_TRUE(CheckView(slice)) << CheckView(slice).error().message;
    ASSERT_EQ(slice.tokens, part);
    for (std::size_t l = 0; l < 3; ++l) {
      const auto& layer = slice.layers[l];
      const auto& source = whole.layers[l];
      const std::uint32_t first = std::max(part.begin, source.tokens.begin);
      EXPECT_EQ(layer.tokens.size(), part.end > first ? part.end - first : 0);
      const auto values = PlaneValues(layer.k);
      const auto all = PlaneValues(source.k);
      const std::size_t columns = source.k.heads * source.k.dim;
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i], all[(layer.tokens.begin - source.tokens.begin) * columns + i]);
      }
    }
  }
}

}  // namespace
}  // namespace kvserve
