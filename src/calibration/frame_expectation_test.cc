#include "calibration/frame_expectation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/testing/chunk.h"

namespace kvserve {
namespace {

// One layer whose values are `first` in the first 32 tokens and `second` behind them.
struct Text {
  Text(std::uint32_t tokens, float first, float second)
      : geometry(testing::MakeGeometry(DType::kFloat32, {{1, 2, 2}})) {
    geometry.layers[0].rope_style = RopeStyle::kNone;
    geometry.layers[0].rope_theta = 0.0F;
    kv = testing::MakeChunk(geometry, {0, tokens}, tokens);
    const auto layer = kv.view().layers[0];
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (std::uint32_t d = 0; d < 2; ++d) {
        testing::SetValue(layer.k, t, 0, d, t < 32 ? first : second);
        testing::SetValue(layer.v, t, 0, d, 1.0F);
      }
    }
  }

  [[nodiscard]] Result<FrameExpectation> Measure() const {
    CalibrationArtefact::Contents contents;
    contents.geometry = geometry;
    contents.whitening.assign(
        2, {.columns = 2, .mean = {0, 0}, .scale = {1, 1}, .inverse = {1, 0, 0, 1}});
    const CalibrationArtefact artefact(std::move(contents), Fingerprint{});
    Workers workers(2);
    return MeasureExpectation(std::vector<ConstKvView>{kv.view()}, artefact, 32, workers);
  }

  KvGeometry geometry;
  KvBuffer kv;
};

TEST(MeasureExpectation, MeansAndDeviationsOverWholeFrames) {
  const auto expectation = Text(70, 2.0F, 8.0F).Measure().value();  // energies of 2 and 6 octaves
  EXPECT_EQ(expectation.frame_tokens, 32U);
  ASSERT_EQ(expectation.planes.size(), 2U);
  EXPECT_NEAR(expectation.planes[0].energy, 4, 1e-5);
  EXPECT_NEAR(expectation.planes[0].energy_spread, 2, 1e-5);
  EXPECT_NEAR(expectation.planes[1].energy, 0, 1e-5);
  EXPECT_GT(expectation.planes[1].energy_spread, 0);  // there, though it never changes
  EXPECT_EQ(expectation.planes[0].gain, 0);
}

TEST(MeasureExpectation, NeedsTwoFrames) {
  EXPECT_EQ(Text(40, 1.0F, 1.0F).Measure().error().code, ErrorCode::kBadInput);
}

}  // namespace
}  // namespace kvserve
