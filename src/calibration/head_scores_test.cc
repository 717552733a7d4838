#include "calibration/head_scores.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvserve {
namespace {

LayerGeometry Layer(std::uint32_t kv_heads, std::uint32_t dim) {
  return {.kv_heads = kv_heads,
          .k_dim = dim,
          .v_dim = dim,
          .rope_style = RopeStyle::kHalves,
          .rope_theta = 10000.0F};
}

TEST(HeadScores, EvenAttentionScoresOneHalf) {
  const std::vector<float> zero(8, 0.0F);
  const auto scores = HeadScores(Layer(1, 8), zero, zero, 100);
  ASSERT_EQ(scores.size(), 1U);
  EXPECT_NEAR(scores[0], 0.505, 1e-9);  // (n + 1) / 2n
  EXPECT_NEAR(HeadScores(Layer(1, 8), zero, zero, 1)[0], 1.0, 1e-9);
}

// With one pair of dim 2 the logit is |q| |k| cos(distance + phase): attention falls off with the
// distance, or rises with it.
TEST(HeadScores, TellNearFromFar) {
  constexpr std::uint32_t kTokens = 4;  // distances 0..3, half a circle
  const std::vector<float> query = {6.0F, 0.0F};
  const auto near = HeadScores(Layer(1, 2), query, std::vector<float>{6.0F, 0.0F}, kTokens);
  const auto far = HeadScores(Layer(1, 2), query, std::vector<float>{-6.0F, 0.0F}, kTokens);
  EXPECT_LT(near[0], 0.26);
  EXPECT_GT(far[0], 0.99);
  double sums = 0, sum = 0;
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    sum += std::exp(36.0 / std::sqrt(2.0) * (std::cos(3.0 - t) - 1));
    sums += sum;
  }
  EXPECT_NEAR(near[0], sums / sum / kTokens, 1e-5);
}

TEST(HeadScores, AreAveragedOverTheQueriesOfAHead) {
  const std::vector<float> keys = {6, 0, -6, 0};
  const std::vector<float> queries = {6, 0, -6, 0, 6, 0, 6, 0};
  const auto scores = HeadScores(Layer(2, 2), queries, keys, 4);
  ASSERT_EQ(scores.size(), 2U);
  const auto one = [](float query, float key) {
    return HeadScores(Layer(1, 2), std::vector<float>{query, 0}, std::vector<float>{key, 0}, 4)[0];
  };
  EXPECT_NEAR(scores[0], (one(6, 6) + one(-6, 6)) / 2, 1e-6);
  EXPECT_NEAR(scores[1], one(6, -6), 1e-6);
}

TEST(HeadScores, WindowsEndTheView) {
  LayerGeometry layer = Layer(1, 2);
  layer.window_tokens = 4;
  const std::vector<float> query = {6.0F, 0.0F};
  EXPECT_EQ(HeadScores(layer, query, query, 1000), HeadScores(Layer(1, 2), query, query, 4));
}

}  // namespace
}  // namespace kvserve
