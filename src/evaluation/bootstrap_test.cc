#include "evaluation/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvserve {
namespace {

TEST(Bootstrap, IsRepeatable) {
  const std::vector<double> values = {1.01, 5.3, 2.7, 8.13, 3.09, 4.4, 0.9, 7.77};
  EXPECT_EQ(BootstrapMean(values, 1), BootstrapMean(values, 1));
  EXPECT_FALSE(BootstrapMean(values, 1) == BootstrapMean(values, 2));
}

TEST(Bootstrap, HasNoWidthWithoutSpread) {
  const std::vector<double> same(10, 0.25);
  EXPECT_EQ(BootstrapMean(same, 1), (Interval{0.25, 0.25}));
  EXPECT_EQ(BootstrapMean(std::vector<double>{3}, 1), (Interval{3, 3}));
  EXPECT_EQ(BootstrapMean({}, 1), Interval{});
}

TEST(Bootstrap, IsAboutTwoStandardErrorsToEachSide) {
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) values.push_back(i % 2);
  const Interval interval = BootstrapMean(values, 7);
  const double error = 0.5 / std::sqrt(400.0);
  EXPECT_NEAR(interval.low, 0.5 - 1.96 * error, 0.2 * error);
  EXPECT_NEAR(interval.high, 0.5 + 1.96 * error, 0.2 * error);
}

TEST(Bootstrap, RelativeValuesAreResampledInPairs) {
  const std::vector<double> baselines = {1, 0, 1, 1, 0, 1};
  EXPECT_EQ(BootstrapRelative(baselines, baselines, 1), (Interval{1, 1}));
  std::vector<double> values = baselines;
  values[0] = 0;
  const Interval interval = BootstrapRelative(values, baselines, 1);
  EXPECT_LT(interval.low, 0.75);
  EXPECT_EQ(interval.high, 1.0);
  EXPECT_EQ(BootstrapRelative({}, {}, 1), (Interval{1, 1}));
  EXPECT_EQ(RelativeValue(0, 0), 1.0);
  EXPECT_EQ(RelativeValue(1, 2), 0.5);
}

TEST(Bootstrap, WilsonHasAWidthEvenWhenAllAreRight) {
  const Interval all = WilsonShare(1.0, 24);
  EXPECT_NEAR(all.low, 0.862, 1e-3);
  EXPECT_DOUBLE_EQ(all.high, 1.0);
  const Interval half = WilsonShare(0.5, 100);
  EXPECT_NEAR(half.low, 0.404, 1e-3);
  EXPECT_NEAR(half.high, 0.596, 1e-3);
  EXPECT_EQ(WilsonShare(0, 0), Interval{});
}

}  // namespace
}  // namespace kvserve
