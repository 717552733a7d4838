// The error bound of uniform quantization as a property, over shapes, dtypes, parameters and
// values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "stages/quantizers/uniform_run.h"

namespace kvserve {
namespace {

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

}  // namespace
}  // namespace kvserve
