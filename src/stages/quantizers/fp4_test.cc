// Bounds of the fp4 quantizer, its bytes, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "pipeline/settings.h"
#include "pipeline/testing/plane_run.h"

namespace kvserve {

const StageEntry& Fp4Stage();

namespace {

std::unique_ptr<Quantizer> Make(double group, double raw_first) {
  const std::vector<ParameterValue> parameters = {{1, group}, {2, group}, {3, raw_first}};
  const auto settings = CheckedSettings(*Fp4Stage().info, parameters, ErrorCode::kInternal);
  return Fp4Stage().make_quantizer(settings.value()).value();
}

std::vector<float> Values(const testing::PlaneCase& plane, float magnitude) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(plane.values());
  for (float& value : values) value = magnitude * normal(random);
  return values;
}

// A sixth of a block's largest value is half the widest gap; the scale is off by a sixteenth.
TEST(Fp4Quantizer, ErrorIsRelativeToTheBlock) {
  const testing::PlaneCase plane{.tokens = 9, .heads = 2, .dim = 40};
  for (const float magnitude : {1e-30F, 1e-3F, 1.0F, 1e30F}) {
    const auto values = Values(plane, magnitude);
    testing::PlaneRun run;
    const auto coded = run.Whole(*Make(16, 0), plane, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t head = i / 40 * 40;
      const std::size_t block = head + i % 40 / 16 * 16;
      float largest = 0.0F;
      for (std::size_t k = block; k < std::min(block + 16, head + 40); ++k) {
        largest = std::max(largest, std::fabs(values[k]));
      }
      ASSERT_LE(std::fabs(values[i] - coded.values[i]), largest / 6 * 1.07F) << magnitude;
    }
  }
}

TEST(Fp4Quantizer, KeepsFourAndAHalfBits) {
  const testing::PlaneCase plane{.tokens = 9, .heads = 2, .dim = 64};
  testing::PlaneRun run;
  const auto coded = run.Whole(*Make(16, 0), plane, Values(plane, 1.0F));
  EXPECT_EQ(coded.side.size(), 4 + 9 * 2 * 4U);
  EXPECT_LT(*std::max_element(coded.symbols.begin(), coded.symbols.end()), 15);
}

TEST(Fp4Quantizer, TilesOfRowsGiveTheBytesAndValuesOfTheWholePlane) {
  for (const double raw_first : {0.0, 1.0}) {
    const testing::PlaneCase plane{.tokens = 37, .heads = 3, .dim = 50, .first_token = 0};
    const auto values = Values(plane, 1.0F);
    testing::PlaneRun run;
    const auto quantizer = Make(16, raw_first);
    const auto whole = run.Whole(*quantizer, plane, values);
    for (const std::uint32_t tile : {1U, 5U, 37U}) {
      const auto tiled = run.Tiled(*quantizer, plane, values, tile);
      EXPECT_EQ(tiled.side, whole.side);
      EXPECT_EQ(tiled.symbols, whole.symbols);
      EXPECT_EQ(tiled.values, whole.values);
    }
  }
}

TEST(Fp4Quantizer, ExtremesStayFiniteAndZeroStaysZero) {
  const testing::PlaneCase plane{.tokens = 2, .heads = 1, .dim = 4, .dtype = DType::kFloat32};
  const std::vector<float> values = {3.4e38F, -3.4e38F, 1e-45F, 0.0F, 1e-40F, 0.0F, 1.0F, -1e-45F};
  testing::PlaneRun run;
  const auto coded = run.Whole(*Make(8, 0), plane, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(std::isfinite(coded.values[i]));
    ASSERT_LE(std::fabs(coded.values[i] - values[i]),
              std::max(std::fabs(values[i]) * 0.07F, 1e35F));
  }
  EXPECT_EQ(coded.values[3], 0.0F);
  const std::vector<float> zeros(8, 0.0F);
  EXPECT_EQ(run.Whole(*Make(8, 0), plane, zeros).values, zeros);
}

TEST(Fp4Quantizer, HostileScalesAreRefused) {
  const testing::PlaneCase plane{.tokens = 2, .heads = 1, .dim = 3};
  testing::PlaneRun run;
  const auto refused = [&](const std::vector<std::uint8_t>& side) {
    return !run.Dequantize(*Make(16, 0), plane, std::as_bytes(std::span(side)));
  };
  EXPECT_FALSE(refused({0, 0, 0x80, 0x3F, 0x38, 0}));
  EXPECT_TRUE(refused({0, 0, 0x80, 0x3F, 0x38}));        // a block is missing
  EXPECT_TRUE(refused({0, 0, 0x80}));                    // the plane's scale too
  EXPECT_TRUE(refused({0, 0, 0x80, 0x3F, 0x38, 0x7F}));  // not a number
  EXPECT_TRUE(refused({0, 0, 0x80, 0x3F, 0x38, 0x80}));  // negative
  EXPECT_TRUE(refused({0, 0, 0x80, 0x7F, 0x38, 0x38}));  // infinite
  EXPECT_TRUE(refused({0, 0, 0, 0, 0x38, 0x38}));        // zero
}

}  // namespace
}  // namespace kvserve
