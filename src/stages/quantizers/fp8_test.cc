// Bounds of the fp8 quantizer, and that its scale is the frame's own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"
#include "pipeline/settings.h"
#include "pipeline/testing/plane_run.h"

namespace kvserve {

const StageEntry& Fp8Stage();

namespace {

// Indices of the choices.
constexpr double kE4M3 = 0, kE5M2 = 1;
constexpr double kUnscaled = 0, kPowerOfTwo = 1, kFloat = 2;
constexpr double kChannel = 0, kToken = 1, kTensor = 2;

std::unique_ptr<Quantizer> Make(double format, double scale, double axis) {
  const std::vector<ParameterValue> parameters = {{1, format}, {2, format}, {3, scale},
                                                  {4, scale},  {5, axis},   {6, axis}};
  const auto settings = CheckedSettings(*Fp8Stage().info, parameters, ErrorCode::kInternal);
  return Fp8Stage().make_quantizer(settings.value()).value();
}

std::vector<float> Values(const testing::PlaneCase& plane, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> scale(std::size_t{plane.heads} * plane.dim);
  for (float& value : scale) value = std::exp2(6.0F * normal(random));
  std::vector<float> values(plane.values());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = scale[i % scale.size()] * normal(random);
  return values;
}

std::size_t RangeOf(std::size_t i, std::size_t columns, double axis) {
  return axis == kChannel ? i % columns : axis == kToken ? i / columns : 0;
}

// Half a unit of the last place: 2^-4 or 2^-3 of a value, or of the smallest normal number, which
// lies 2^-15 or 2^-30 and less below the largest of the range.
TEST(Fp8Quantizer, ErrorIsRelativeToTheValue) {
  for (const double format : {kE4M3, kE5M2}) {
    for (const double scale : {kPowerOfTwo, kFloat}) {
      for (const double axis : {kChannel, kToken, kTensor}) {
        const testing::PlaneCase plane{.tokens = 37, .heads = 2, .dim = 300};
        const auto values = Values(plane, 1);
        const auto quantizer = Make(format, scale, axis);
        testing::PlaneRun run;
        const auto coded = run.Whole(*quantizer, plane, values);
        std::vector<float> largest(600 + 37);
        for (std::size_t i = 0; i < values.size(); ++i) {
          float& top = largest[RangeOf(i, 600, axis)];
          top = std::max(top, std::fabs(values[i]));
        }
        const double relative = format == kE4M3 ? 0x1p-4 : 0x1p-3;
        const double smallest = format == kE4M3 ? 0x1p-6 / 448 : 0x1p-14 / 57344;
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double floor = 2.0 * smallest * largest[RangeOf(i, 600, axis)];
          const double bound = relative * std::max<double>(std::fabs(values[i]), floor) * 1.0001;
          ASSERT_LE(std::fabs(double{values[i]} - coded.values[i]), bound)
              << values[i] << " format " << format << " scale " << scale << " axis " << axis;
        }
      }
    }
  }
}

TEST(Fp8Quantizer, TilesOfRowsGiveTheBytesAndValuesOfTheWholePlane) {
  for (const double scale : {kUnscaled, kPowerOfTwo, kFloat}) {
    for (const double axis : {kChannel, kToken, kTensor}) {
      const testing::PlaneCase plane{.tokens = 37, .heads = 3, .dim = 50};
      const auto values = Values(plane, 2);
      const auto quantizer = Make(kE4M3, scale, axis);
      testing::PlaneRun run;
      const auto whole = run.Whole(*quantizer, plane, values);
      ForEachIsa([&] {
        for (const std::uint32_t tile : {1U, 16U, 64U}) {
          const auto tiled = run.Tiled(*quantizer, plane, values, tile);
          EXPECT_EQ(tiled.side, whole.side);
          EXPECT_EQ(tiled.symbols, whole.symbols);
          EXPECT_EQ(tiled.values, whole.values);
        }
      });
    }
  }
}

// A cast far above 448 must not give the bytes of NaN.
TEST(Fp8Quantizer, WithoutAScaleItClampsToTheLargestValue) {
  const testing::PlaneCase plane{.tokens = 1, .heads = 1, .dim = 7};
  const std::vector<float> values = {448.0F, 449.0F, 464.0F, 480.0F, 1e4F, 65504.0F, -1e6F};
  ForEachIsa([&] {
    testing::PlaneRun run;
    const auto coded = run.Whole(*Make(kE4M3, kUnscaled, kTensor), plane, values);
    EXPECT_TRUE(coded.side.empty());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(coded.values[i], std::copysign(448.0F, values[i]));
      EXPECT_EQ(coded.symbols[i] & 0x7F, 0x7E);
    }
  });
}

// Small values first and a hundred times larger ones later: frames have scales of their own, so the
// later ones are as exact as the first.
TEST(Fp8Quantizer, ScalesFollowTheFrame) {
  for (const double axis : {kChannel, kToken, kTensor}) {
    const auto quantizer = Make(kE4M3, kPowerOfTwo, axis);
    testing::PlaneRun run;
    for (const float loudness : {0.01F, 100.0F, 1e4F, 1e-30F, 1e30F}) {
      testing::PlaneCase plane{.tokens = 16, .heads = 1, .dim = 64};
      std::mt19937 random(3);
      std::uniform_real_distribution<float> uniform(0.5F, 1.0F);
      std::vector<float> values(plane.values());
      for (float& value : values) value = loudness * uniform(random);
      const auto coded = run.Whole(*quantizer, plane, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::fabs(values[i] - coded.values[i]), values[i] / 16.0F * 1.0001F) << loudness;
      }
    }
  }
}

TEST(Fp8Quantizer, ExtremesStayFiniteAndZeroStaysZero) {
  for (const double scale : {kPowerOfTwo, kFloat}) {
    const testing::PlaneCase plane{.tokens = 3, .heads = 1, .dim = 4, .dtype = DType::kFloat32};
    const std::vector<float> values = {3.4e38F, -3.4e38F, 1e-45F, 0.0F,   3.3e38F, 1.0F,
                                       1e-40F,  0.0F,     1e38F,  1e-38F, -1e-45F, 0.0F};
    testing::PlaneRun run;
    for (const double axis : {kChannel, kToken, kTensor}) {
      const auto coded = run.Whole(*Make(kE4M3, scale, axis), plane, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_TRUE(std::isfinite(coded.values[i]));
        ASSERT_LE(std::fabs(coded.values[i] - values[i]),
                  std::max(std::fabs(values[i]) * 0.0626F, 1e35F));
      }
      EXPECT_EQ(coded.values[3], 0.0F);
    }
  }
}

TEST(Fp8Quantizer, HostileScalesAreRefused) {
  const testing::PlaneCase plane{.tokens = 2, .heads = 1, .dim = 3};
  testing::PlaneRun run;
  const auto refused = [&](double scale, const std::vector<std::uint8_t>& side) {
    return !run.Dequantize(*Make(kE4M3, scale, kToken), plane, std::as_bytes(std::span(side)));
  };
  EXPECT_FALSE(refused(kPowerOfTwo, {0, 127}));
  EXPECT_TRUE(refused(kPowerOfTwo, {0}));
  EXPECT_TRUE(refused(kPowerOfTwo, {0, 0x80}));  // 2^-128
  EXPECT_FALSE(refused(kFloat, {0, 0, 0x80, 0x3F, 0, 0, 0x80, 0x3F}));
  EXPECT_TRUE(refused(kFloat, {0, 0, 0x80, 0x3F, 0, 0, 0x80, 0xBF}));  // negative
  EXPECT_TRUE(refused(kFloat, {0, 0, 0x80, 0x3F, 0, 0, 0x80, 0x7F}));  // infinite
  EXPECT_TRUE(refused(kFloat, {0, 0, 0x80, 0x3F, 0, 0, 0xC0, 0x7F}));  // NaN
  EXPECT_TRUE(refused(kFloat, {0, 0, 0x80, 0x3F, 0, 0, 0, 0}));        // zero
}

}  // namespace
}  // namespace kvserve
