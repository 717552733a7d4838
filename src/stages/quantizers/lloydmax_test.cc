// The lloydmax quantizer: its error on normal values, norms, bytes, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "pipeline/settings.h"
#include "pipeline/testing/plane_run.h"

namespace kvserve {

const StageEntry& LloydmaxStage();

namespace {

constexpr double kRms = 0, kNorm = 1;

std::unique_ptr<Quantizer> Make(double levels, double group, double scale, double raw_first) {
  const std::vector<ParameterValue> parameters = {
      {1, levels}, {2, levels}, {3, group}, {4, group}, {5, scale}, {6, scale}, {7, raw_first}};
  const auto settings = CheckedSettings(*LloydmaxStage().info, parameters, ErrorCode::kInternal);
  return LloydmaxStage().make_quantizer(settings.value()).value();
}

std::vector<float> Values(const testing::PlaneCase& plane, float magnitude) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(plane.values());
  for (float& value : values) value = magnitude * normal(random);
  return values;
}

// The distortions that the literature gives for 1 to 4 bits.
TEST(LloydMaxQuantizer, ReachesTheDistortionOfTheCodebook) {
  const testing::PlaneCase plane{.tokens = 200, .heads = 2, .dim = 128};
  const auto values = Values(plane, 3.0F);
  const double expected[][2] = {{2, 0.3634}, {4, 0.1175}, {8, 0.03454}, {16, 0.009497}};
  for (const auto& [levels, distortion] : expected) {
    testing::PlaneRun run;
    const auto coded = run.Whole(*Make(levels, 1024, kRms, 0), plane, values);
    double error = 0.0;
    double power = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      error += std::pow(double{values[i]} - coded.values[i], 2);
      power += std::pow(double{values[i]}, 2);
    }
    EXPECT_NEAR(error / power / distortion, 1.0, 0.06) << levels;
  }
}

TEST(LloydMaxQuantizer, KeepsNormsIfAsked) {
  const testing::PlaneCase plane{.tokens = 9, .heads = 2, .dim = 64};
  const auto values = Values(plane, 1.0F);
  testing::PlaneRun run;
  for (const double levels : {2.0, 3.0, 16.0}) {
    const auto coded = run.Whole(*Make(levels, 1024, kNorm, 0), plane, values);
    for (std::size_t at = 0; at < values.size(); at += 64) {
      double before = 0.0;
      double after = 0.0;
      for (std::size_t i = at; i < at + 64; ++i) {
        before += std::pow(double{values[i]}, 2);
        after += std::pow(double{coded.values[i]}, 2);
      }
      EXPECT_NEAR(after / before, 1.0, 2e-3) << levels;
    }
  }
}

TEST(LloydMaxQuantizer, SendsTwoBytesPerVector) {
  const testing::PlaneCase plane{.tokens = 9, .heads = 2, .dim = 64};
  testing::PlaneRun run;
  EXPECT_EQ(run.Whole(*Make(16, 1024, kNorm, 0), plane, Values(plane, 1.0F)).side.size(),
            1 + 9 * 2 * 2U);
  EXPECT_EQ(run.Whole(*Make(16, 24, kNorm, 0), plane, Values(plane, 1.0F)).side.size(),
            1 + 9 * 2 * 3 * 2U);
}

TEST(LloydMaxQuantizer, TilesOfRowsGiveTheBytesAndValuesOfTheWholePlane) {
  for (const double raw_first : {0.0, 1.0}) {
    const testing::PlaneCase plane{.tokens = 37, .heads = 3, .dim = 50, .first_token = 0};
    const auto values = Values(plane, 1.0F);
    testing::PlaneRun run;
    const auto quantizer = Make(8, 1024, kNorm, raw_first);
    const auto whole = run.Whole(*quantizer, plane, values);
    for (const std::uint32_t tile : {1U, 5U, 37U}) {
      const auto tiled = run.Tiled(*quantizer, plane, values, tile);
      EXPECT_EQ(tiled.side, whole.side);
      EXPECT_EQ(tiled.symbols, whole.symbols);
      EXPECT_EQ(tiled.values, whole.values);
    }
  }
}

TEST(LloydMaxQuantizer, ExtremesStayFiniteAndZeroStaysZero) {
  const testing::PlaneCase plane{.tokens = 2, .heads = 1, .dim = 4, .dtype = DType::kFloat32};
  const std::vector<float> values = {3.4e38F, -3.4e38F, 1e-45F, 0.0F, 1e-45F, 0.0F, 0.0F, -1e-45F};
  testing::PlaneRun run;
  for (const float value : run.Whole(*Make(16, 1024, kNorm, 0), plane, values).values) {
    ASSERT_TRUE(std::isfinite(value));
  }
  // What keeps the norm of these is beyond float32.
  const std::vector<float> largest(8, 3.4e38F);
  for (const float value : run.Whole(*Make(2, 1024, kNorm, 0), plane, largest).values) {
    ASSERT_GT(value, 2.7e38F);
  }
  const std::vector<float> zeros(8, 0.0F);
  EXPECT_EQ(run.Whole(*Make(8, 1024, kNorm, 0), plane, zeros).values, zeros);
}

TEST(LloydMaxQuantizer, HostileScalesAreRefused) {
  const testing::PlaneCase plane{.tokens = 2, .heads = 1, .dim = 3};
  testing::PlaneRun run;
  const auto refused = [&](const std::vector<std::uint8_t>& side) {
    return !run.Dequantize(*Make(16, 1024, kNorm, 0), plane, std::as_bytes(std::span(side)));
  };
  EXPECT_FALSE(refused({0, 0, 0x3C, 0, 0}));
  EXPECT_TRUE(refused({0, 0, 0x3C, 0}));        // half a scale is missing
  EXPECT_TRUE(refused({2, 0, 0x3C, 0, 0}));     // unknown form
  EXPECT_TRUE(refused({0, 0, 0x3C, 0, 0xBC}));  // negative
  EXPECT_TRUE(refused({0, 0, 0x3C, 0, 0x7C}));  // infinite
  EXPECT_TRUE(refused({0, 0, 0x3C, 0, 0x7E}));  // not a number
  EXPECT_TRUE(refused({1, 0, 0, 0x80, 0x3F}));  // the second float32 is missing
}

}  // namespace
}  // namespace kvserve
