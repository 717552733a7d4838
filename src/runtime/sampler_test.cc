#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvserve {
namespace {

TEST(Sampler, GreedyTakesTheLowestOfEqualsAndNeverNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Sampler sampler({.temperature = 0.0F});
  EXPECT_EQ(sampler.Pick(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(sampler.Pick(std::vector<float>{nan, -2, nan, -1}), 3);
}

TEST(Sampler, SameSeedSameTokensOtherSeedOthers) {
  const std::vector<float> logits(50, 0.5F);
  Sampler a({.seed = 7});
  Sampler b({.seed = 7});
  Sampler c({.seed = 8});
  int differing = 0;
  for (int i = 0; i < 100; ++i) {
    const Token token = a.Pick(logits);
    EXPECT_EQ(token, b.Pick(logits));
    differing += token != c.Pick(logits) ? 1 : 0;
  }
  EXPECT_GT(differing, 50);
}

TEST(Sampler, FrequenciesFollowTheTemperature) {
  // p = softmax(logits / T): ratio exp(1 / T) between the two.
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    Sampler sampler({.temperature = temperature, .seed = 1});
    constexpr int kDraws = 20000;
    int first = 0;
    for (int i = 0; i < kDraws; ++i) first += sampler.Pick(std::vector<float>{1, 0}) == 0 ? 1 : 0;
    const double expected = 1.0 / (1.0 + std::exp(-1.0 / temperature));
    EXPECT_NEAR(first / double{kDraws}, expected, 0.02) << temperature;
  }
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits{std::log(4.0F), std::log(2.0F), 0.0F, 0.0F};
  for (const auto& [top_p, highest] : {std::pair{0.0F, 0}, {0.4F, 0}, {0.7F, 1}, {1.0F, 3}}) {
    Sampler sampler({.top_p = top_p, .seed = 3});
    Token seen = 0;
    for (int i = 0; i < 500; ++i) seen = std::max(seen, sampler.Pick(logits));
    EXPECT_EQ(seen, highest) << top_p;
  }
}

}  // namespace
}  // namespace kvserve
