#include "pipeline/frame_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

// z = x, and components of layer 1 are predicted to be half of layer 0's.
CalibrationArtefact Artefact(const KvGeometry& geometry) {
  CalibrationArtefact::Contents contents;
  contents.geometry = geometry;
  contents.whitening.resize(4);
  for (Whitening& whitening : contents.whitening) {
    whitening = {
        .columns = 2, .mean = {0, 0}, .scale = {1.0F / 64, 1.0F / 64}, .inverse = {64, 0, 0, 64}};
  }
  contents.predictors.resize(4);
  // Inputs are K and V of layer 0, in 1/64.
  contents.predictors[2] = {
      .inputs = 4, .scale = {1.0F / 128, 1.0F / 128}, .weights = {1, 0, 0, 0, 0, 1, 0, 0}};
  return CalibrationArtefact(std::move(contents), Fingerprint{});
}

struct Frame {
  explicit Frame(std::uint32_t tokens,
                 const std::vector<testing::LayerShape>& layers = {{1, 2, 2}, {1, 2, 2}})
      : geometry(testing::MakeGeometry(DType::kFloat32, layers)) {
    for (LayerGeometry& layer : geometry.layers) {
      layer.rope_style = RopeStyle::kNone;
      layer.rope_theta = 0.0F;
    }
    kv = testing::MakeChunk(geometry, {0, tokens});
    for (const auto& layer : kv.view().layers) {
      const float value = layer.layer == 0 ? 8.0F : 5.0F;  // predicted: 4
      for (std::uint32_t t = 0; t < tokens; ++t) {
        for (std::uint32_t d = 0; d < 2; ++d) {
          testing::SetValue(layer.k, t, 0, d, t < 4 ? 1000.0F : value);
          testing::SetValue(layer.v, t, 0, d, 2.0F);
        }
      }
    }
  }

  KvGeometry geometry;
  KvBuffer kv;
};

TEST(FrameStatistics, EnergyAndGainInOctaves) {
  const Frame frame(100);
  const CalibrationArtefact artefact = Artefact(frame.geometry);
  Arena arena;
  const auto found = MeasureFrame(frame.kv.view(), artefact, arena).value();
  ASSERT_EQ(found.size(), 4U);
  EXPECT_NEAR(found[0].energy, 6, 1e-6);
  EXPECT_NEAR(found[1].energy, 2, 1e-6);
  EXPECT_NEAR(found[2].energy, std::log2(25.0), 1e-6);
  EXPECT_EQ(found[0].gain, 0);
  EXPECT_NEAR(found[2].gain, std::log2(25.0), 1e-6);  // 5 less 4 is left
}

TEST(FrameStatistics, PredictorsMayLookAtTwoLayers) {
  const Frame frame(100, {{1, 2, 2}, {1, 2, 2}, {1, 2, 2}});
  CalibrationArtefact::Contents contents = Artefact(frame.geometry).contents();
  contents.whitening.resize(6, contents.whitening[0]);
  contents.predictor_layers = 2;
  // Layer 2 from K of layer 0, the first of the inputs; layer 1 has only that before it.
  Predictor wide{.inputs = 8, .scale = {1.0F / 128, 1.0F / 128}, .weights = {}};
  wide.weights = {1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
  contents.predictors.resize(6);
  contents.predictors[4] = wide;
  const CalibrationArtefact artefact(std::move(contents), Fingerprint{});
  Arena arena;
  const auto found = MeasureFrame(frame.kv.view(), artefact, arena).value();
  EXPECT_NEAR(found[2].gain, std::log2(25.0), 1e-6);
  EXPECT_NEAR(found[4].gain, std::log2(25.0), 1e-6);
}

TEST(FrameStatistics, FramesOfSinksAloneAndPlanesWithoutWhitening) {
  const Frame frame(4);
  const CalibrationArtefact artefact = Artefact(frame.geometry);
  Arena arena;
  const auto sinks = MeasureFrame(frame.kv.view(), artefact, arena);
  ASSERT_TRUE(sinks);
  for (const auto& plane : *sinks) EXPECT_FALSE(plane.measured);
  CalibrationArtefact::Contents contents = artefact.contents();
  contents.whitening.clear();
  const CalibrationArtefact without(std::move(contents), Fingerprint{});
  const Frame longer(20);
  EXPECT_FALSE(MeasureFrame(longer.kv.view(), without, arena).value()[0].measured);
}

TEST(FrameStatistics, DistancesAreInDeviations) {
  const PlaneStatistics frame[] = {{true, 5, 1}, {false, 0, 0}, {true, 2, 3}};
  FrameExpectation expectation{.frame_tokens = 256, .planes = {}, .in_kind = false};
  expectation.planes = {{2, 1, 1, 0.5F}, {9, 1, 9, 1}, {2, 1, 1, 0.5F}, {}};
  Arena arena;
  const auto planes = DistancesOf(frame, expectation, arena);
  ASSERT_EQ(planes.size(), 3U);
  EXPECT_FALSE(planes[1].compared);
  EXPECT_NEAR(planes[0].residual, 3 / std::hypot(1, 0.5), 1e-9);
  EXPECT_NEAR(planes[2].gain, 4, 1e-9);
  const FrameDistance distance = Summarize(planes);
  EXPECT_NEAR(distance.energy, std::sqrt(9.0 / 2), 1e-9);
  EXPECT_NEAR(distance.gain, std::sqrt(16.0 / 2), 1e-9);
  EXPECT_NEAR(distance.key_loss, -2, 1e-9);
  EXPECT_NEAR(distance.key_residual, (3 - 2) / std::hypot(1, 0.5) / 2, 1e-9);
  EXPECT_EQ(Summarize({}).energy, 0);
}

TEST(FrameStatistics, KeysWithoutAPredictorLoseNoGain) {
  const PlaneStatistics frame[] = {{true, 5, 0}, {true, 2, 1}, {true, 2, 1}};
  FrameExpectation expectation{.frame_tokens = 256, .planes = {}, .in_kind = false};
  expectation.planes = {{2, 1, 0, 0}, {2, 1, 1, 1}, {2, 1, 3, 1}};
  Arena arena;
  const FrameDistance distance = Summarize(DistancesOf(frame, expectation, arena));
  EXPECT_NEAR(distance.key_loss, 2, 1e-9);
  EXPECT_NEAR(distance.key_residual, 2 / std::hypot(1, 1), 1e-9);
}

}  // namespace
}  // namespace kvserve
