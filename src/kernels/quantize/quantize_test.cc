#include "kernels/quantize/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

struct Case {
  std::vector<float> values, zero, step, inverse;
};

Case RandomCase(std::size_t rows, std::size_t columns) {
  std::mt19937 random(static_cast<unsigned>(rows * 131 + columns));
  std::normal_distribution<float> normal(0.0F, 10.0F);
  Case result;
  for (std::size_t i = 0; i < rows * columns; ++i) result.values.push_back(normal(random));
  for (std::size_t c = 0; c < columns; ++c) {
    result.zero.push_back(normal(random) - 20.0F);
    result.step.push_back(0.1F + std::fabs(normal(random)));
    result.inverse.push_back(1.0F / result.step.back());
  }
  result.step[0] = result.inverse[0] = 0.0F;
  result.values[0] = 3e38F;
  return result;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Quantize, ColumnsMatchTheOracleOnEveryTarget) {
  for (const std::size_t columns : {1U, 17U, 64U, 100U}) {
    for (const std::uint32_t top : {1U, 2U, 15U, 255U}) {
      const auto c = RandomCase(9, columns);
      std::vector<std::uint8_t> expected(c.values.size()), symbols(c.values.size());
      std::vector<float> expected_values(c.values.size()), values(c.values.size());
      QuantizeColumnsRef(c.values, c.zero, c.inverse, top, expected);
      DequantizeColumnsRef(expected, c.zero, c.step, expected_values);
      ForEachIsa([&] {
        QuantizeColumns(c.values, c.zero, c.inverse, top, symbols);
        EXPECT_EQ(symbols, expected);
        DequantizeColumns(expected, c.zero, c.step, values);
        EXPECT_TRUE(SameBits(values, expected_values));
      });
    }
  }
}

TEST(Quantize, SpanMatchesTheOracleOnEveryTarget) {
  for (const std::size_t count : {1U, 5U, 64U, 197U}) {
    const auto c = RandomCase(1, count);
    std::vector<std::uint8_t> expected(count), symbols(count);
    std::vector<float> expected_values(count), values(count);
    QuantizeSpanRef(c.values, -12.3F, 1.0F / 0.37F, 63, expected);
    DequantizeSpanRef(expected, -12.3F, 0.37F, expected_values);
    ForEachIsa([&] {
      QuantizeSpan(c.values, -12.3F, 1.0F / 0.37F, 63, symbols);
      EXPECT_EQ(symbols, expected);
      DequantizeSpan(expected, -12.3F, 0.37F, values);
      EXPECT_TRUE(SameBits(values, expected_values));
    });
  }
}

TEST(Quantize, RoundsHalvesToEvenAndClamps) {
  const std::vector<float> values = {0.5F, 1.5F, 2.5F, -3.0F, 9.0F, 1e38F, -1e38F};
  ForEachIsa([&] {
    std::vector<std::uint8_t> symbols(values.size());
    QuantizeSpan(values, 0.0F, 1.0F, 7, symbols);
    EXPECT_EQ(symbols, (std::vector<std::uint8_t>{0, 2, 2, 0, 7, 7, 0}));
  });
}

}  // namespace
}  // namespace kvserve
