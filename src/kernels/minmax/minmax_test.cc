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
  for (std::size_t count = 1; count < 150; ++count) {
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

TEST(MinMax, RunsMatchTheOracle) {
  for (const Runs runs : {Runs{1, 1}, Runs{5, 2}, Runs{80, 32}, Runs{100, 100}, Runs{33, 16}}) {
    const auto values = Random(4 * runs.segment);
    const std::size_t count = runs.count(values.size());
    std::vector<float> low(count), high(count), actual_low(count), actual_high(count);
    MinMaxRunsRef(values, runs, low, high);
    ForEachIsa([&] {
      MinMaxRuns(values, runs, actual_low, actual_high);
      EXPECT_EQ(actual_low, low);
      EXPECT_EQ(actual_high, high);
    });
  }
}

TEST(MinMax, ColumnsMatchTheOracleInOneOrTwoParts) {
  for (const std::size_t columns : {1U, 15U, 16U, 64U, 83U}) {
    for (const std::size_t rows : {1U, 2U, 9U, 37U}) {
      const auto values = Random(rows * columns);
      std::vector<float> low(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(columns));
      std::vector<float> high = low;
      WidenMinMaxColumnsRef(values, low, high);
      ForEachIsa([&] {
        std::vector<float> actual_low(columns), actual_high(columns);
        MinMaxColumns(values, actual_low, actual_high);
        EXPECT_EQ(actual_low, low);
        EXPECT_EQ(actual_high, high);
        const auto first = std::span(values).first(rows / 2 * columns + columns);
        MinMaxColumns(first, actual_low, actual_high);
        WidenMinMaxColumns(std::span(values).subspan(first.size()), actual_low, actual_high);
        EXPECT_EQ(actual_low, low);
        EXPECT_EQ(actual_high, high);
      });
    }
  }
}

}  // namespace
}  // namespace kvserve
