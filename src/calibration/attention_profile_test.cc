#include "calibration/attention_profile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/attention_levels.h"
#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

KvGeometry WithoutRope(std::uint32_t window) {
  KvGeometry geometry = testing::MakeGeometry(DType::kFloat32, {{1, 2, 1, window}, {1, 2, 0}});
  for (LayerGeometry& layer : geometry.layers) {
    layer.rope_style = RopeStyle::kNone;
    layer.rope_theta = 0.0F;
  }
  return geometry;
}

// Keys that are all alike have p = 1 / seen; values of 1 and -1 in turn have |v - o|^2 = 1.
struct Alike {
  explicit Alike(std::uint32_t tokens, std::uint32_t window = 0)
      : geometry(WithoutRope(window)), kv(testing::MakeChunk(geometry, {0, tokens}, tokens)) {
    for (const auto& layer : kv.view().layers) {
      for (std::uint32_t t = 0; t < layer.k.tokens; ++t) {
        testing::SetValue(layer.k, t, 0, 0, 1.0F);
        testing::SetValue(layer.k, t, 0, 1, 1.0F);
        if (layer.v.dim > 0) testing::SetValue(layer.v, t, 0, 0, t % 2 == 0 ? 1.0F : -1.0F);
      }
    }
    queries.assign(2, {.heads = 2, .dim = 2, .mean = {1, 0, 0, 1}, .covariance = {}});
    for (auto& layer : queries) layer.covariance.assign(8, 0.0F);
  }

  Result<AttentionProfile> Measure() const {
    Workers workers(2);
    return MeasureAttention(std::vector<ConstKvView>{kv.view()}, queries, 100, workers);
  }

  KvGeometry geometry;
  KvBuffer kv;
  std::vector<QueryStatistics> queries;
};

TEST(MeasureAttention, LevelsOfKeysThatAreAllAlike) {
  const Alike alike(300);
  const auto profile = alike.Measure().value();
  EXPECT_EQ(profile.horizon, 100U);
  EXPECT_EQ(profile.seen, (std::vector<std::uint32_t>{64, 128, 256}));
  ASSERT_EQ(profile.planes.size(), 4U);
  EXPECT_TRUE(profile.planes[3].level.empty());
  for (std::size_t p = 0; p < 3; ++p) {
    const AttentionLevels levels(profile, profile.planes[p]);
    for (const double seen : {64.0, 200.0, 256.0, 300.0}) {
      const double expected = 1 - 2 * std::log2(seen);  // two heads of p^2 each
      EXPECT_NEAR(levels.Level(seen, 0), expected, 1e-3) << p << " " << seen;
      EXPECT_NEAR(levels.Level(seen, 700), expected, 1e-3) << p << " " << seen;
    }
    EXPECT_NEAR(levels.Recency(3), 0, 1e-3);
    EXPECT_NEAR(levels.Recency(250), 0, 1e-3);
  }
}

TEST(MeasureAttention, RecencyIsByDistanceFromTheEnd) {
  Alike alike(300);
  // Logits of the first head are log 2 higher for the last 32 tokens; of the other all are alike.
  const auto layer = alike.kv.view().layers[0];
  for (std::uint32_t t = 268; t < 300; ++t) {
    testing::SetValue(layer.k, t, 0, 0, 1.0F + std::log(2.0F) * std::sqrt(2.0F));
    testing::SetValue(layer.k, t, 0, 1, 1.0F + std::log(2.0F) * std::sqrt(2.0F));
  }
  const auto profile = alike.Measure().value();
  const AttentionLevels levels(profile, profile.planes[1]);
  EXPECT_NEAR(levels.Recency(8) - levels.Recency(200), 2, 1e-3);
}

TEST(MeasureAttention, WindowLayersHaveLevelsWithinTheirWindow) {
  const Alike alike(100, 80);
  const auto profile = alike.Measure().value();
  const AttentionLevels levels(profile, profile.planes[1]);
  EXPECT_NEAR(levels.Level(64, 0), 1 - 12, 1e-3);
  EXPECT_NEAR(levels.Level(64, 128), 1 - 12, 1e-3);  // taken from what is nearest
}

TEST(MeasureAttention, RefusesWhatCannotBeMeasured) {
  EXPECT_EQ(Alike(7).Measure().error().code, ErrorCode::kBadInput);
  Alike broken(64);
  testing::SetValue(broken.kv.view().layers[1].k, 3, 0, 0, NAN);
  EXPECT_EQ(broken.Measure().error().code, ErrorCode::kBadInput);
  Alike partly(64);
  partly.queries[1] = {};
  EXPECT_TRUE(partly.Measure().value().planes[2].level.empty());
}

}  // namespace
}  // namespace kvserve
