#include "pipeline/attention_levels.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvserve {
namespace {

AttentionProfile Sample() {
  return {.horizon = 384,
          .seen = {64, 256},
          .ahead = {0, 192},
          .distance = {0, 32, 96},
          .planes = {{.level = {-10, -12, -14, -18}, .recency = {3, 1, -4}}}};
}

TEST(AttentionLevels, AreLinearInTheLogarithmsOfTheKnots) {
  const AttentionProfile profile = Sample();
  const AttentionLevels levels(profile, profile.planes[0]);
  EXPECT_DOUBLE_EQ(levels.Level(64, 0), -10);
  EXPECT_DOUBLE_EQ(levels.Level(256, 192), -18);
  EXPECT_DOUBLE_EQ(levels.Level(128, 0), -12);
  EXPECT_DOUBLE_EQ(levels.Level(64, 64), -11);  // log2(128) is between log2(64) and log2(256)
  EXPECT_DOUBLE_EQ(levels.Level(128, 64), -13.5);
  EXPECT_DOUBLE_EQ(levels.Recency(32), 1);
  EXPECT_NEAR(levels.Recency(std::sqrt(32.0 * 64) - 32), 2, 1e-12);
}

TEST(AttentionLevels, BeyondTheKnots) {
  const AttentionProfile profile = Sample();
  const AttentionLevels levels(profile, profile.planes[0]);
  EXPECT_DOUBLE_EQ(levels.Level(1024, 0), -18);  // two octaves of keys
  EXPECT_DOUBLE_EQ(levels.Level(32, 0), -8);
  EXPECT_DOUBLE_EQ(levels.Level(256, 1e6), -18);
  EXPECT_DOUBLE_EQ(levels.Recency(1e6), -4);
}

TEST(AttentionLevels, MeansOverTokens) {
  const AttentionProfile profile = Sample();
  const AttentionLevels levels(profile, profile.planes[0]);
  EXPECT_EQ(levels.MeanRecency({5, 5}, 100), 0);
  EXPECT_DOUBLE_EQ(levels.MeanRecency({7, 8}, 8), levels.Recency(0.5));
  double sum = 0;
  for (int t = 0; t < 640; ++t) sum += levels.Recency(640 - t - 0.5);
  EXPECT_NEAR(levels.MeanRecency({0, 640}, 640), sum / 640, 0.02);
}

// Frames of any size have the same whole: a request's mean is that of its frames.
TEST(AttentionLevels, ExpectationOfAFrameIsItsLevelMovedToItsTokens) {
  const AttentionProfile profile = Sample();
  const AttentionLevels levels(profile, profile.planes[0]);
  // The last 64 of 256 keys.
  EXPECT_NEAR(levels.Expected({192, 256}, 256, 256), -14, 0.5);
  const double last = levels.Expected({192, 256}, 256, 256);
  const double all = levels.Expected({0, 256}, 256, 256);
  EXPECT_NEAR(last - all, levels.MeanRecency({192, 256}, 256) - levels.MeanRecency({0, 256}, 256),
              1e-12);
}

}  // namespace
}  // namespace kvserve
