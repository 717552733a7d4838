#include "evaluation/distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace kvserve {
namespace {

// Logits whose softmax are these probabilities, shifted by an arbitrary constant.
std::vector<float> Logits(const std::vector<double>& probabilities, float shift) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + shift);
  return logits;
}

DistributionScore Score(std::vector<float> reference, std::uint32_t vocabulary,
                        std::vector<std::int32_t> targets, const std::vector<float>& other) {
  const auto distributions =
      ReferenceDistributions::Create(std::move(reference), vocabulary, std::move(targets));
  EXPECT_TRUE(distributions);
  const auto score = distributions->Compare(other);
  EXPECT_TRUE(score);
  return *score;
}

TEST(Distribution, EqualLogitsScoreExactlyZero) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 8);
  std::vector<float> logits(5 * 1000);
  for (float& logit : logits) logit = normal(random);
  const auto score = Score(logits, 1000, {1, 2, 3, 4}, logits);
  EXPECT_EQ(score.kl, 0.0);
  EXPECT_EQ(score.top1_agreement, 1.0);
  EXPECT_EQ(score.nll, score.reference_nll);
  EXPECT_GT(score.nll, 0.0);
}

TEST(Distribution, KnownValues) {
  // KL((1/2, 1/4, 1/4) || (1/4, 1/4, 1/2)) = 1/2 ln 2 - 1/4 ln 2.
  const auto score = Score(Logits({.5, .25, .25}, 3), 3, {0}, Logits({.25, .25, .5}, -4));
  EXPECT_NEAR(score.kl, 0.25 * std::log(2.0), 1e-6);
  EXPECT_EQ(score.top1_agreement, 0.0);
  EXPECT_NEAR(score.reference_nll, std::log(2.0), 1e-6);
  EXPECT_NEAR(score.nll, std::log(4.0), 1e-6);
}

TEST(Distribution, MeansAreOverRowsAndTargets) {
  std::vector<float> reference = Logits({.5, .25, .25}, 0);
  std::vector<float> other = Logits({.25, .25, .5}, 0);
  const auto same = Logits({.2, .2, .6}, 0);
  reference.insert(reference.end(), same.begin(), same.end());
  other.insert(other.end(), same.begin(), same.end());
  const auto score = Score(reference, 3, {0}, other);
  EXPECT_NEAR(score.kl, 0.125 * std::log(2.0), 1e-6);
  EXPECT_EQ(score.top1_agreement, 0.5);
  EXPECT_NEAR(score.reference_nll, std::log(2.0), 1e-6);  // the second row has no target
}

TEST(Distribution, IsNeverNegativeAndSurvivesLargeLogits) {
  const std::vector<float> reference = {3e4F, -3e4F, 0};
  const auto score = Score(reference, 3, {}, {3e4F, 0, -3e4F});
  EXPECT_GE(score.kl, 0.0);
  EXPECT_LT(score.kl, 1e-9);
}

TEST(Distribution, RefusesWhatDoesNotFit) {
  EXPECT_EQ(ReferenceDistributions::Create({1, 2, 3}, 2, {}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(ReferenceDistributions::Create({1, 2}, 2, {2}).error().code,
            ErrorCode::kInvalidArgument);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(ReferenceDistributions::Create({1, nan}, 2, {}).error().code, ErrorCode::kBadInput);
  const auto reference = ReferenceDistributions::Create({1, 2}, 2, {0});
  EXPECT_EQ(reference->Compare(std::vector<float>{1}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(reference->Compare(std::vector<float>{1, nan}).error().code, ErrorCode::kBadInput);
}

}  // namespace
}  // namespace kvserve
