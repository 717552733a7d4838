// Nearest points, ties, lengths and scales; the tables of points against their definition.
#include "kernels/codebook/codebook.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/codebook/float4.h"
#include "kernels/codebook/lloyd_max.h"
#include "kernels/codebook/scaled_runs.h"
#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

std::vector<std::uint8_t> Symbols(const Codebook& book, const std::vector<float>& values,
                                  float inverse) {
  std::vector<std::uint8_t> symbols(values.size(), 255);
  QuantizeToCodebook(book, values, inverse, symbols);
  return symbols;
}

TEST(Codebook, FindsTheNearestPointOfAnyNumberOfValues) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  for (const Codebook& book : {kFloat4, LloydMaxCodebook(2), LloydMaxCodebook(16)}) {
    for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 64U, 100U}) {
      std::vector<float> values(count);
      for (float& value : values) value = normal(random);
      std::vector<std::uint8_t> symbols(count);
      QuantizeToCodebookRef(book, values, 0.5F, symbols);
      ForEachIsa([&] { EXPECT_EQ(Symbols(book, values, 0.5F), symbols) << count; });
      for (std::size_t i = 0; i < count; ++i) {
        const float x = values[i] * 0.5F;
        const auto nearest =
            std::min_element(book.points.begin(), book.points.end(),
                             [&](float a, float b) { return std::fabs(a - x) < std::fabs(b - x); });
        ASSERT_EQ(symbols[i], nearest - book.points.begin()) << x;
      }
    }
  }
}

TEST(Codebook, TiesGoToTheLowerSymbol) {
  EXPECT_EQ(Symbols(kFloat4, {0.25F, -0.25F, 5.0F, 7.0F, -1e30F}, 1.0F),
            (std::vector<std::uint8_t>{7, 6, 13, 14, 0}));
}

TEST(Codebook, ScalesPointsAndStaysFinite) {
  const std::vector<std::uint8_t> symbols = {0, 7, 14};
  std::vector<float> values(3);
  DequantizeFromCodebook(kFloat4, symbols, 0.5F, values);
  EXPECT_EQ(values, (std::vector<float>{-3.0F, 0.0F, 3.0F}));
  DequantizeFromCodebook(kFloat4, symbols, 0.0F, values);
  for (const float value : values) EXPECT_FALSE(std::signbit(value));
  DequantizeFromCodebook(kFloat4, symbols, 3e38F, values);
  constexpr float kLargest = std::numeric_limits<float>::max();
  EXPECT_EQ(values, (std::vector<float>{-kLargest, 0.0F, kLargest}));
}

double Density(double x) {
  return std::exp(-0.5 * x * x) / std::sqrt(2.0 * 3.14159265358979323846);
}
double Below(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

// Lloyd's conditions: a point is the mean of its bin, whose ends are the middles.
TEST(LloydMax, PointsAreTheMeansOfTheirBins) {
  for (std::uint32_t count = 2; count <= kMostCodebookPoints; ++count) {
    const Codebook book = LloydMaxCodebook(count);
    ASSERT_EQ(book.points.size(), count);
    ASSERT_EQ(book.middles.size(), count - 1);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(book.points[i], -book.points[count - 1 - i]);
      const double low = i == 0 ? -40.0 : double{book.middles[i - 1]};
      const double high = i + 1 == count ? 40.0 : double{book.middles[i]};
      const double mean = (Density(low) - Density(high)) / (Below(high) - Below(low));
      EXPECT_NEAR(book.points[i], mean, 1.5e-4) << count << " points, " << i;
    }
  }
}

TEST(ScaledRuns, CutsRowsByHeadAndGroup) {
  const ScaledRuns runs(kFloat4, 8, 2, 20);  // 8, 8 and 4 of each head
  EXPECT_EQ(runs.per_row(), 6U);
  std::vector<std::size_t> seen;
  runs.ForEach(3, 80, [&](std::size_t at, std::size_t count, std::size_t run) {
    seen.insert(seen.end(), {at, count, run});
  });
  EXPECT_EQ(std::vector<std::size_t>(seen.begin(), seen.begin() + 12),
            (std::vector<std::size_t>{0, 8, 18, 8, 8, 19, 16, 4, 20, 20, 8, 21}));
  EXPECT_EQ(seen.size(), 36U);
}

}  // namespace
}  // namespace kvserve
