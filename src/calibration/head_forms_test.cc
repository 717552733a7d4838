#include "calibration/head_forms.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvserve {
namespace {

LayerGeometry Layer(std::uint32_t kv_heads, std::uint32_t dim, RopeStyle style) {
  return {.kv_heads = kv_heads,
          .k_dim = dim,
          .v_dim = dim,
          .rope_style = style,
          .rope_theta = style == RopeStyle::kNone ? 0.0F : 10000.0F};
}

// Two query heads for one KV head, queries that never vary.
TEST(HeadForms, KeysWithoutRotationGetTheSecondMomentOfTheQueries) {
  QueryStatistics queries{.heads = 2, .dim = 2, .mean = {1, 2, 3, 0}, .covariance = {}};
  queries.covariance = {4, 0, 0, 0, 0, 0, 0, 0};
  const auto forms = KeyForms(Layer(1, 2, RopeStyle::kNone), queries, std::vector{1.0, 10.0}, 100);
  ASSERT_EQ(forms.size(), 4U);
  EXPECT_FLOAT_EQ(forms[0], (4 + 1 + 10 * 9) / 2.0F);  // over sqrt(dim)^2
  EXPECT_FLOAT_EQ(forms[1], 2 / 2.0F);
  EXPECT_FLOAT_EQ(forms[2], 2 / 2.0F);
  EXPECT_FLOAT_EQ(forms[3], 4 / 2.0F);
}

// The fast pair forgets its direction over many distances, the slow one keeps it.
TEST(HeadForms, RotationAveragesFastPairsAndKeepsSlowOnes) {
  const QueryStatistics queries{
      .heads = 1, .dim = 4, .mean = {1, 1, 0, 0}, .covariance = std::vector<float>(16)};
  const auto at = [](const std::vector<float>& forms, int r, int c) { return forms[r * 4 + c]; };
  const auto halves = KeyForms(Layer(1, 4, RopeStyle::kHalves), queries, std::vector{1.0}, 64);
  EXPECT_NEAR(at(halves, 0, 0), 0.125, 0.02);  // pair (0, 2), one radian per token
  EXPECT_NEAR(at(halves, 2, 2), 0.125, 0.02);
  EXPECT_NEAR(at(halves, 1, 1), 0.25 * std::pow(std::cos(0.32), 2), 0.03);  // (1, 3), 1/100
  EXPECT_LT(at(halves, 3, 3), 0.04);
  EXPECT_GT(at(halves, 3, 1), 0.02);  // turned forward: both components are positive
  const auto trace = [&](const std::vector<float>& forms) {
    return at(forms, 0, 0) + at(forms, 1, 1) + at(forms, 2, 2) + at(forms, 3, 3);
  };
  EXPECT_NEAR(trace(halves), 0.5, 1e-5);
  const auto neighbours =
      KeyForms(Layer(1, 4, RopeStyle::kInterleaved), queries, std::vector{1.0}, 64);
  EXPECT_NEAR(at(neighbours, 0, 0), 0.25, 0.04);  // one pair of equal parts, evened out
  EXPECT_NEAR(at(neighbours, 2, 2), 0, 1e-6);
}

TEST(HeadForms, OutputsAreProductsOfTheColumnsOfAHead) {
  // Two outputs, two query heads of two channels.
  const std::vector<float> weights = {1, 2, 3, 4,  //
                                      5, 6, 7, 8};
  const auto forms = OutputForms(weights, 4, 2);
  EXPECT_EQ(forms, (std::vector<float>{26, 32, 32, 40, 58, 68, 68, 80}));
}

}  // namespace
}  // namespace kvserve
