#include "engine/llama/rope_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace kvserve {
namespace {

constexpr std::uint32_t kTokens = 8;
constexpr std::uint32_t kHeads = 3;
constexpr std::uint32_t kDim = 64;

std::vector<float> Keys() {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> keys(std::size_t{kTokens} * kHeads * kDim);
  for (float& key : keys) key = normal(random);
  return keys;
}

std::vector<float> Rotate(const std::vector<float>& keys, RopeStyle style, double theta,
                          double scale) {
  std::vector<float> out = keys;
  for (std::size_t vector = 0; vector < keys.size() / kDim; ++vector) {
    const std::size_t token = vector / kHeads;
    const double position = static_cast<double>(token) * scale;
    for (std::size_t i = 0; i < kDim / 2; ++i) {
      const std::size_t a = vector * kDim + (style == RopeStyle::kInterleaved ? 2 * i : i);
      const std::size_t b = a + (style == RopeStyle::kInterleaved ? 1 : kDim / 2);
      const double angle = position / std::pow(theta, 2.0 * static_cast<double>(i) / kDim);
      out[a] = static_cast<float>(keys[a] * std::cos(angle) - keys[b] * std::sin(angle));
      out[b] = static_cast<float>(keys[a] * std::sin(angle) + keys[b] * std::cos(angle));
    }
  }
  return out;
}

TEST(RopeFit, TellsTheStylesApart) {
  const auto keys = Keys();
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalves}) {
    const auto fit = FitRope(keys, Rotate(keys, style, 1e5, 1), kHeads, kDim, 1e5F);
    ASSERT_TRUE(fit);
    EXPECT_EQ(fit->style, style);
    EXPECT_EQ(fit->theta, 1e5F);
  }
}

TEST(RopeFit, UnrotatedKeysHaveNoStyle) {
  const auto keys = Keys();
  const auto fit = FitRope(keys, keys, kHeads, kDim, 1e4F);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->style, RopeStyle::kNone);
  EXPECT_EQ(fit->theta, 0.0F);
}

TEST(RopeFit, RefusesAnotherBaseOrScaledFrequencies) {
  const auto keys = Keys();
  EXPECT_FALSE(FitRope(keys, Rotate(keys, RopeStyle::kHalves, 1e6, 1), kHeads, kDim, 1e4F));
  EXPECT_FALSE(FitRope(keys, Rotate(keys, RopeStyle::kHalves, 1e4, 0.125), kHeads, kDim, 1e4F));
}

TEST(RopeFit, RefusesShapesThatDoNotFit) {
  const auto keys = Keys();
  const auto one_token = std::vector<float>(keys.begin(), keys.begin() + kHeads * kDim);
  EXPECT_FALSE(FitRope(keys, one_token, kHeads, kDim, 1e4F));
  EXPECT_FALSE(FitRope(one_token, one_token, kHeads, kDim, 1e4F));
  EXPECT_FALSE(FitRope(keys, keys, 0, kDim, 1e4F));
}

}  // namespace
}  // namespace kvserve
