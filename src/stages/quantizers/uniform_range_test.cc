// What version 2 of the uniform quantizer brought: rows, symmetric and fixed grids, dead zones,
// conditional means and one range for a plane.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "stages/quantizers/uniform_run.h"

namespace kvserve {
namespace {

constexpr double kSymmetric = 1;
constexpr double kFixed = 2;
constexpr double kTensorAxis = 3;

class UniformRangeTest : public UniformTest {};

std::vector<float> Gaussian(const PlaneSetup& setup, unsigned seed, float scale = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(std::size_t{setup.tokens} * setup.heads * setup.dim);
  for (float& value : values) value = normal(random);
  return values;
}

double SquaredError(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
  return sum;
}

PlaneSetup RandomSetup(std::mt19937& random) {
  PlaneSetup setup;
  setup.tokens = 1 + random() % 90;
  setup.heads = 1 + random() % 3;
  setup.dim = 1 + random() % 130;
  setup.first_token = random() % 3 == 0 ? 0 : 16;
  setup.kind = random() % 2 == 0 ? PlaneKind::kKey : PlaneKind::kValue;
  setup.levels = 2 + random() % (random() % 2 == 0 ? 254 : 20);
  setup.axis = random() % 4;
  setup.group = 8 + random() % 100;
  setup.range = random() % 3;
  setup.step = 0.5;
  setup.reconstruct = random() % 2;
  if (setup.range == 0 || static_cast<int>(setup.levels) % 2 == 1) {
    setup.dead_zone = random() % 3 * 0.3;
  }
  return setup;
}

TEST_F(UniformRangeTest, TilesOfRowsGiveTheBytesAndValuesOfTheWholePlane) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const PlaneSetup setup = RandomSetup(random);
    auto values = Random(setup, random);
    if (trial % 10 == 0) values.back() = 1e33F;  // a plane that is shifted
    const Decoded whole = Run(setup, values);
    for (const std::uint32_t tile : {1U, 16U, 64U}) {
      const Decoded tiled = RunTiled(setup, values, tile);
      ASSERT_EQ(tiled.side, whole.side) << setup.text();
      ASSERT_EQ(tiled.symbols, whole.symbols) << setup.text();
      ASSERT_EQ(tiled.values, whole.values) << setup.text();
    }
  }
}

TEST_F(UniformRangeTest, TensorAxisHasOneRange) {
  PlaneSetup setup{.tokens = 40, .heads = 2, .dim = 64, .levels = 16, .axis = kTensorAxis};
  const auto values = Gaussian(setup, 1);
  const auto decoded = Run(setup, values);
  EXPECT_LE(decoded.side.size(), 12U);
  ExpectBound(setup, values, decoded.values, 0);
}

TEST_F(UniformRangeTest, SymmetricGridsHaveZeroExactlyIfLevelsAreOdd) {
  for (const double axis : {0, 1, 2, 3}) {
    for (const double levels : {2, 3, 4, 15, 16}) {
      PlaneSetup setup{
          .tokens = 20, .heads = 1, .dim = 70, .levels = levels, .axis = axis, .range = kSymmetric};
      auto values = Gaussian(setup, 2);
      for (float& value : values) value = std::fabs(value);  // a range to one side
      for (std::size_t i = 0; i < 70; ++i) values[i] = 0.0F;
      const auto decoded = Run(setup, values);
      const bool odd = static_cast<int>(levels) % 2 == 1;
      const float largest = *std::max_element(values.begin(), values.end());
      const double bound = 0.5 * 2.0 * largest / (levels - 1) * 17.0 / 16.0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::fabs(double{values[i]} - decoded.values[i]), bound * 1.0001);
        if (i >= 70) continue;
        // A range of zeros alone is exact anyway.
        EXPECT_TRUE(odd || axis == 1 || axis == 2 || decoded.values[i] != 0.0F) << setup.text();
        EXPECT_TRUE(!odd || decoded.values[i] == 0.0F) << setup.text();
      }
      const std::size_t ranges = axis == 0 ? 70 : axis == 1 ? 20 : axis == 2 ? 40 : 1;
      EXPECT_EQ(decoded.side.size(), 3 + ranges);
    }
  }
}

TEST_F(UniformRangeTest, FixedStepsBoundTheErrorOfEveryValue) {
  for (const double levels : {2, 3, 16, 255}) {
    PlaneSetup setup{.tokens = 30, .heads = 2, .dim = 33, .levels = levels, .range = kFixed};
    setup.step = 0.25;
    auto values = Gaussian(setup, 3);
    values[7] = 600.0F;
    values[500] = -3e38F;
    const auto decoded = Run(setup, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::fabs(double{values[i]} - decoded.values[i]), 0.125 * 1.0001) << i;
    }
    EXPECT_EQ(decoded.values[7], 600.0F);
    EXPECT_EQ(decoded.values[500], -3e38F);
  }
}

TEST_F(UniformRangeTest, FixedStepsCostNoBytesBesideEscapes) {
  PlaneSetup setup{.tokens = 30, .heads = 2, .dim = 32, .levels = 255, .range = kFixed};
  setup.step = 0.1;
  auto values = Gaussian(setup, 4);
  EXPECT_EQ(Run(setup, values).side.size(), 1U);
  values[100] = 100.0F;
  EXPECT_EQ(Run(setup, values).side.size(), 1U + 1 + 4);
}

TEST_F(UniformRangeTest, DeadZoneWidensTheBinOfZero) {
  for (const double range : {0.0, kSymmetric, kFixed}) {
    PlaneSetup setup{.tokens = 60, .heads = 1, .dim = 64, .levels = 15, .axis = kTensorAxis};
    setup.range = range;
    setup.step = 0.5;
    const auto values = Gaussian(setup, 5);
    const auto zeros = [&](double dead_zone) {
      setup.dead_zone = dead_zone;
      const auto decoded = Run(setup, values);
      float largest_zero = 0.0F;
      std::size_t count = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (decoded.values[i] != 0.0F) continue;
        largest_zero = std::max(largest_zero, std::fabs(values[i]));
        ++count;
      }
      return std::pair(count, largest_zero);
    };
    const auto [wide_count, wide] = zeros(0.6);
    const auto [widest_count, widest] = zeros(1.0);
    EXPECT_GT(wide_count, values.size() / 8);
    EXPECT_GT(widest_count, wide_count * 9 / 8);
    EXPECT_NEAR(widest / wide, 2.0 / 1.6, 0.02);
  }
}

TEST_F(UniformRangeTest, DeadZoneNeedsALevelAtZero) {
  for (const double range : {kSymmetric, kFixed}) {
    PlaneSetup setup{.levels = 16, .range = range, .dead_zone = 0.5};
    EXPECT_EQ(MakeError(setup).code, ErrorCode::kInvalidArgument);
    EXPECT_NE(MakeError(setup).message.find("odd"), std::string::npos);
  }
}

// The rate-distortion gain is what conditional means are for: dB for a few bytes.
TEST_F(UniformRangeTest, MeansGainDecibelsAtFewLevels) {
  for (const double axis : {0, 1}) {
    for (const auto& [levels, least_db] :
         {std::pair(2.0, 4.0), std::pair(4.0, 1.0), std::pair(6.0, 0.4), std::pair(8.0, 0.2)}) {
      PlaneSetup setup{.tokens = 256, .heads = 3, .dim = 64, .levels = levels, .axis = axis};
      const auto values = Gaussian(setup, 6);
      const auto midpoint = Run(setup, values);
      setup.reconstruct = 1;
      const auto mean = Run(setup, values);
      EXPECT_EQ(mean.symbols, midpoint.symbols);
      EXPECT_EQ(mean.side.size(), midpoint.side.size() + 1 + static_cast<std::size_t>(levels));
      const double gain_db = 10.0 * std::log10(SquaredError(values, midpoint.values) /
                                               SquaredError(values, mean.values));
      EXPECT_GE(gain_db, least_db) << setup.text();
      RecordProperty("gain_db_" + std::to_string(static_cast<int>(axis)) + "_" +
                         std::to_string(static_cast<int>(levels)),
                     std::to_string(gain_db));
    }
  }
}

TEST_F(UniformRangeTest, MeansNeverLoseMoreThanTheirSampleErrs) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 100; ++trial) {
    PlaneSetup setup = RandomSetup(random);
    const auto values = Random(setup, random);
    setup.reconstruct = 0;
    const auto midpoint = Run(setup, values);
    setup.reconstruct = 1;
    const auto mean = Run(setup, values);
    EXPECT_EQ(mean.symbols, midpoint.symbols);
    EXPECT_LE(mean.side.size(), midpoint.side.size() + 1 + static_cast<std::size_t>(setup.levels));
  }
}

TEST_F(UniformRangeTest, HostileSideBytesAreRefused) {
  std::mt19937 random(8);
  for (const double range : {0.0, kSymmetric, kFixed}) {
    PlaneSetup setup{.tokens = 90, .heads = 1, .dim = 16, .first_token = 0, .levels = 4};
    setup.range = range;
    setup.reconstruct = 1;
    auto values = Gaussian(setup, 9);
    values.back() = range == kFixed ? 1e6F : 3.0F;
    const auto good = Run(setup, values).side;
    for (std::size_t length = 0; length < good.size(); ++length) {
      EXPECT_FALSE(Dequantize(setup, std::span(good).first(length))) << length;
    }
  }
}

// Frames of version 1 had no such axis; they are damage, not a promise of what it means.
TEST_F(UniformRangeTest, VersionOneHasNoTensorAxis) {
  const auto make = [](double axis) {
    const std::vector<ParameterValue> parameters = {{1, 16}, {2, 16}, {3, axis}, {4, axis},
                                                    {5, 64}, {6, 64}, {7, 1}};
    const auto settings =
        CheckedSettings(*UniformStage().info, 1, parameters, ErrorCode::kCorruptData);
    return settings && UniformStage().make_quantizer(*settings).has_value();
  };
  EXPECT_TRUE(make(2));
  EXPECT_FALSE(make(kTensorAxis));
}

TEST_F(UniformRangeTest, WorkThatRepeatsTakesNoNewMemory) {
  PlaneSetup setup{.tokens = 64, .heads = 2, .dim = 64, .first_token = 0};
  setup.reconstruct = 1;
  const auto values = Gaussian(setup, 10);
  (void)Run(setup, values);
  const std::size_t held = arena_bytes();
  for (int i = 0; i < 5; ++i) (void)Run(setup, values);
  EXPECT_EQ(arena_bytes(), held);
}

}  // namespace
}  // namespace kvserve
