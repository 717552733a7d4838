#include "kernels/minmax/minmax.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

std::vector<float> Random(std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::uniform_real_distribution<float> uniform(-1e3F, 1e3F);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

TEST(MinMax, SpanMatchesTheOracleAtEveryLength) {
  for (std::size_t count = 1; count < 70; ++count) {
    auto values = Random(count);
    for (std::size_t extreme = 0; extreme < count; ++extreme) {
      values[extreme] = -1e9F;
      values[(extreme + 1) % count] = count > 1 ? 3e38F : -1e9F;
      const auto expected = MinMaxSpanRef(values);
      ForEachIsa([&] {
        const auto actual = MinMaxSpan(values);
        EXPECT_EQ(actual.low, expected.low);
        EXPECT_EQ(actual.high, expected.high);
      });
      values = Random(count);
    }
  }
}

TEST(MinMax, ColumnsMatchTheOracle) {
  for (const std::size_t columns : {1U, 15U, 64U, 83U}) {
    for (const std::size_t rows : {1U, 2U, 37U}) {
      const auto values = Random(rows * columns);
      std::vector<float> low(columns), high(columns), actual_low(columns), actual_high(columns);
      MinMaxColumnsRef(values, low, high);
      ForEachIsa([&] {
        MinMaxColumns(values, actual_low, actual_high);
        EXPECT_EQ(actual_low, low);
        EXPECT_EQ(actual_high, high);
      });
    }
  }
}

}  // namespace
}  // namespace kvserve
