// The error bound of uniform quantization as a property, over shapes, dtypes, parameters and
// values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "stages/testing/uniform_case.h"

namespace kvserve {
namespace {

using testing::Decoded;
using testing::PlaneSetup;
using testing::UniformTest;

constexpr double kSymmetric = 1;
constexpr double kFixed = 2;
constexpr double kTensorAxis = 3;

// Which range a value belongs to, told independently of the stage.
std::size_t RangeOf(const PlaneSetup& setup, std::size_t index) {
  const std::size_t columns = std::size_t{setup.heads} * setup.dim;
  const std::size_t row = index / columns;
  const std::size_t column = index % columns;
  if (setup.axis == 0) return column;
  if (setup.axis == 1) return row;
  if (setup.axis == 3) return 0;
  const auto group = static_cast<std::size_t>(setup.group);
  const std::size_t groups = (setup.dim + group - 1) / group;
  return (index / setup.dim) * groups + (column % setup.dim) / group;
}

// Every value is within half of the widest step that the format may choose for its range.
void ExpectBound(const PlaneSetup& setup, const std::vector<float>& x, const std::vector<float>& y,
                 std::size_t first) {
  const std::size_t ranges = x.size() + std::size_t{setup.heads} * setup.dim;
  std::vector<float> low(ranges, std::numeric_limits<float>::infinity());
  std::vector<float> high(ranges, -std::numeric_limits<float>::infinity());
  for (std::size_t i = first; i < x.size(); ++i) {
    low[RangeOf(setup, i)] = std::min(low[RangeOf(setup, i)], x[i]);
    high[RangeOf(setup, i)] = std::max(high[RangeOf(setup, i)], x[i]);
  }
  for (std::size_t i = first; i < x.size(); ++i) {
    const double l = low[RangeOf(setup, i)];
    const double h = high[RangeOf(setup, i)];
    const double half_step = 0.5 * (h - l) / (setup.levels - 1) * 17.0 / 16.0;
    const double rounding = 2e-7 * std::max(std::fabs(l), std::fabs(h)) + 0x1p-121;
    ASSERT_LE(std::fabs(double{x[i]} - y[i]), half_step * 1.0001 + (l == h ? 0.0 : rounding))
        << setup.text() << " index " << i << " value " << x[i] << " got " << y[i];
  }
}

std::vector<float> Random(const PlaneSetup& setup, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> scale, shift;
  const std::size_t columns = std::size_t{setup.heads} * setup.dim;
  for (std::size_t c = 0; c < columns; ++c) {
    scale.push_back(std::exp2(2.0F * normal(random)));
    shift.push_back(random() % 8 == 0 ? 600.0F * normal(random) : 0.0F);
  }
  std::vector<float> values(setup.tokens * columns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale[i % columns] * normal(random) + shift[i % columns];
  }
  return values;
}

TEST_F(UniformTest, ErrorIsAtMostHalfAStepForRandomParameters) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 400; ++trial) {
    PlaneSetup setup;
    setup.tokens = 1 + random() % 40;
    setup.heads = 1 + random() % 3;
    setup.dim = 1 + random() % 130;
    setup.kind = random() % 2 == 0 ? PlaneKind::kKey : PlaneKind::kValue;
    setup.levels = trial % 4 == 0 ? 2 + random() % 6 : 2 + random() % 255;
    setup.axis = random() % 3;
    setup.group = 8 + random() % 100;
    const auto values = Random(setup, random);
    ExpectBound(setup, values, Run(setup, values).values, 0);
  }
}

TEST_F(UniformTest, EveryHeadDimensionWorksWithEveryGroup) {
  std::mt19937 random(2);
  for (const std::uint32_t dim :
       {1U, 64U, 80U, 96U, 100U, 112U, 120U, 128U, 192U, 256U, 512U, 576U}) {
    for (const double group : {16, 32, 64, 128}) {
      PlaneSetup setup{.tokens = 3, .heads = 2, .dim = dim, .axis = 2, .group = group};
      const auto values = Random(setup, random);
      ExpectBound(setup, values, Run(setup, values).values, 0);
    }
  }
}

TEST_F(UniformTest, ExtremeValuesKeepTheBound) {
  std::mt19937 random(3);
  for (const double axis : {0, 1, 2}) {
    for (const double levels : {2, 3, 16, 256}) {
      PlaneSetup setup{.tokens = 20,
                       .heads = 1,
                       .dim = 70,
                       .dtype = DType::kFloat32,
                       .levels = levels,
                       .axis = axis};
      auto values = Random(setup, random);
      for (std::size_t i = 0; i < values.size(); i += 70) {
        values[i] = 1e38F * (i % 3 == 0 ? 3.4F : -3.4F);  // an outlier channel
        values[i + 1] = 0.1F;                             // all equal
        values[i + 2] = 0.0F * (i % 2 == 0 ? 1.0F : -1.0F);
      }
      ExpectBound(setup, values, Run(setup, values).values, 0);
      for (auto& value : values) value = 1e-44F * static_cast<float>(random() % 50);
      const auto tiny = Run(setup, values).values;
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::fabs(double{values[i]} - tiny[i]), 50e-44 / (levels - 1) * 0.54 + 0x1p-149);
      }
    }
  }
}

TEST_F(UniformTest, EqualChannelsAreExact) {
  for (const double axis : {0, 1, 2}) {
    PlaneSetup setup{.tokens = 5, .heads = 2, .dim = 24, .levels = 2, .axis = axis};
    std::vector<float> values(5 * 48, 1.0F / 3.0F);
    EXPECT_EQ(Run(setup, values).values, values);
  }
}

TEST_F(UniformTest, FirstTokenOfTheRequestIsKeptAndDoesNotWidenRanges) {
  std::mt19937 random(4);
  PlaneSetup setup{.tokens = 30, .heads = 2, .dim = 64, .first_token = 0};
  auto values = Random(setup, random);
  for (std::size_t c = 0; c < 128; ++c) values[c] = 1000.0F + static_cast<float>(c);
  const auto decoded = Run(setup, values);
  EXPECT_EQ(decoded.symbols.size(), 29U * 128U);
  for (std::size_t c = 0; c < 128; ++c) ASSERT_NEAR(decoded.values[c], values[c], 0.5F);
  ExpectBound(setup, values, decoded.values, 128);
  setup.raw_first = 0;
  EXPECT_EQ(Run(setup, values).symbols.size(), 30U * 128U);
  setup.tokens = 1;
  setup.raw_first = 1;
  values.resize(128);
  EXPECT_EQ(Run(setup, values).symbols.size(), 0U);
}

TEST_F(UniformTest, RawTokenBeyondHalfRangeIsKeptInFloat32) {
  PlaneSetup setup{.tokens = 1, .heads = 1, .dim = 8, .first_token = 0, .dtype = DType::kBFloat16};
  const std::vector<float> values = {1e30F, -3.4e38F, 1.0F, 0.0F, 2.0F, 1e-30F, 5.0F, 7.0F};
  EXPECT_EQ(Run(setup, values).values, values);
  const std::vector<float> tiny = {1e-30F, -2e-30F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F};
  EXPECT_EQ(Run(setup, tiny).values, tiny);
}

TEST_F(UniformTest, RangesCostTwoBytesEach) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  PlaneSetup setup{.tokens = 256, .heads = 3, .dim = 64};
  std::vector<float> values(256 * 192);
  for (float& value : values) value = normal(random);
  EXPECT_LE(Run(setup, values).side.size(), 192U * 2 + 16);
}

TEST_F(UniformTest, HostileSideBytesAreRefused) {
  std::mt19937 random(6);
  PlaneSetup setup{.tokens = 9, .heads = 1, .dim = 16, .first_token = 0};
  const auto good = Run(setup, Random(setup, random)).side;
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(Dequantize(setup, std::span(good).first(length))) << length;
  }
  auto wrong_form = good;
  wrong_form[0] = std::byte{2};
  EXPECT_FALSE(Dequantize(setup, wrong_form));
  auto wrong_shift = good;
  wrong_shift[1 + 32] = std::byte{1};
  EXPECT_FALSE(Dequantize(setup, wrong_shift));
}

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

TEST_F(UniformTest, TilesOfRowsGiveTheBytesAndValuesOfTheWholePlane) {
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

TEST_F(UniformTest, TensorAxisHasOneRange) {
  PlaneSetup setup{.tokens = 40, .heads = 2, .dim = 64, .levels = 16, .axis = kTensorAxis};
  const auto values = Gaussian(setup, 1);
  const auto decoded = Run(setup, values);
  EXPECT_LE(decoded.side.size(), 12U);
  ExpectBound(setup, values, decoded.values, 0);
}

TEST_F(UniformTest, SymmetricGridsHaveZeroExactlyIfLevelsAreOdd) {
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

TEST_F(UniformTest, FixedStepsBoundTheErrorOfEveryValue) {
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

TEST_F(UniformTest, FixedStepsCostNoBytesBesideEscapes) {
  PlaneSetup setup{.tokens = 30, .heads = 2, .dim = 32, .levels = 255, .range = kFixed};
  setup.step = 0.1;
  auto values = Gaussian(setup, 4);
  EXPECT_EQ(Run(setup, values).side.size(), 1U);
  values[100] = 100.0F;
  EXPECT_EQ(Run(setup, values).side.size(), 1U + 1 + 4);
}

TEST_F(UniformTest, DeadZoneWidensTheBinOfZero) {
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

TEST_F(UniformTest, DeadZoneNeedsALevelAtZero) {
  for (const double range : {kSymmetric, kFixed}) {
    PlaneSetup setup{.levels = 16, .range = range, .dead_zone = 0.5};
    EXPECT_EQ(MakeError(setup).code, ErrorCode::kInvalidArgument);
    EXPECT_NE(MakeError(setup).message.find("odd"), std::string::npos);
  }
}

// The rate-distortion gain is what conditional means are for: dB for a few bytes.
TEST_F(UniformTest, MeansGainDecibelsAtFewLevels) {
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

TEST_F(UniformTest, HostileBytesOfMeansAndEscapesAreRefused) {
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
TEST_F(UniformTest, VersionOneHasNoTensorAxis) {
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

// Blocks of tokens, in both forms of grids: a block with large values costs the others nothing.
TEST_F(UniformTest, BlocksOfTokensHaveRangesOfTheirOwn) {
  for (const double half : {0, 1}) {
    PlaneSetup setup{.tokens = 50, .heads = 2, .dim = 24, .first_token = 0};
    setup.block = 8;
    setup.half = half;
    auto values = Gaussian(setup, 11);
    const std::size_t columns = 48;
    for (std::size_t i = 20 * columns; i < 22 * columns; ++i) values[i] *= 1000.0F;
    const Decoded whole = Run(setup, values);
    for (std::size_t i = columns; i < values.size(); ++i) {
      const std::size_t block = (i / columns - 1) / 8;
      if (block == 2) continue;
      ASSERT_NEAR(values[i], whole.values[i], 0.5) << half << " at " << i;
    }
    for (const std::uint32_t tile : {1U, 7U, 50U}) {
      const Decoded tiled = RunTiled(setup, values, tile);
      EXPECT_EQ(tiled.side, whole.side);
      EXPECT_EQ(tiled.values, whole.values);
    }
  }
}

TEST_F(UniformTest, FloatGridsCostFourBytesEach) {
  PlaneSetup setup{.tokens = 50, .heads = 2, .dim = 24, .first_token = 16};
  setup.half = 1;
  EXPECT_EQ(Run(setup, Gaussian(setup, 12)).side.size(), 1 + 48 * 4U);
  setup.dead_zone = 0.5;
  EXPECT_NE(MakeError(setup).message.find("grids=float16"), std::string::npos);
  setup.range = 1;
  setup.levels = 15;
  EXPECT_EQ(Run(setup, Gaussian(setup, 12)).side.size(), 1 + 48 * 2U);
}

TEST_F(UniformTest, WorkThatRepeatsTakesNoNewMemory) {
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
