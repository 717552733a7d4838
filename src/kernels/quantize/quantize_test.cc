#include "kernels/quantize/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

// Grids of some ranges, with dead zones and points when asked for.
struct GridValues {
  std::vector<float> zero, step, inverse, centre, points;
  std::uint32_t top = 0;

  GridValues(std::size_t ranges, std::uint32_t highest, bool dead_zone, bool own_points)
      : top(highest) {
    std::mt19937 random(static_cast<unsigned>(ranges * 131 + top));
    std::normal_distribution<float> normal(0.0F, 10.0F);
    for (std::size_t i = 0; i < ranges; ++i) {
      zero.push_back(normal(random) - 20.0F);
      step.push_back(0.1F + std::fabs(normal(random)));
      inverse.push_back(1.0F / step.back());
      if (!dead_zone) continue;
      centre.push_back(i % 3 == 0 ? kNoCentre : static_cast<float>(random() % (top + 1)));
    }
    step[0] = inverse[0] = 0.0F;
    for (std::uint32_t q = 0; own_points && q < 256; ++q) {
      points.push_back(static_cast<float>(q) + normal(random) * 0.01F);
    }
  }
  [[nodiscard]] Grids grids() const {
    Grids grids;
    grids.zero = zero;
    grids.step = step;
    grids.inverse = inverse;
    grids.centre = centre;
    grids.points = points;
    grids.top = top;
    grids.reach = 0.8F;
    return grids;
  }
};

std::vector<float> Values(std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::normal_distribution<float> normal(0.0F, 10.0F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  values[0] = 3e38F;
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

template <typename Check>
void ForEachGrid(std::size_t ranges, const Check& check) {
  for (const std::uint32_t top : {1U, 2U, 7U, 15U, 16U, 31U, 32U, 255U}) {
    for (const bool dead_zone : {false, true}) {
      check(GridValues(ranges, top, dead_zone, !dead_zone));
      check(GridValues(ranges, top, dead_zone, false));
    }
  }
}

TEST(Quantize, ColumnsMatchTheOracleOnEveryTarget) {
  for (const std::size_t columns : {1U, 7U, 16U, 17U, 64U, 100U}) {
    const auto values = Values(9 * columns);
    ForEachGrid(columns, [&](const GridValues& grid) {
      std::vector<std::uint8_t> expected(values.size());
      std::vector<float> expected_values(values.size());
      QuantizeColumnsRef(values, grid.grids(), expected);
      DequantizeColumnsRef(expected, grid.grids(), expected_values);
      ForEachIsa([&] {
        std::vector<std::uint8_t> symbols(values.size(), 0xEE);
        std::vector<float> actual(values.size());
        QuantizeColumns(values, grid.grids(), symbols);
        EXPECT_EQ(symbols, expected);
        DequantizeColumns(expected, grid.grids(), actual);
        EXPECT_TRUE(SameBits(actual, expected_values));
      });
    });
  }
}

TEST(Quantize, RunsMatchTheOracleOnEveryTarget) {
  for (const Runs runs : {Runs{1, 1}, Runs{5, 5}, Runs{80, 80}, Runs{80, 32}, Runs{100, 9},
                          Runs{17, 16}, Runs{576, 64}}) {
    const auto values = Values(3 * runs.segment);
    ForEachGrid(runs.count(values.size()), [&](const GridValues& grid) {
      std::vector<std::uint8_t> expected(values.size());
      std::vector<float> expected_values(values.size());
      QuantizeRunsRef(values, runs, grid.grids(), expected);
      DequantizeRunsRef(expected, runs, grid.grids(), expected_values);
      ForEachIsa([&] {
        std::vector<std::uint8_t> symbols(values.size(), 0xEE);
        std::vector<float> actual(values.size());
        QuantizeRuns(values, runs, grid.grids(), symbols);
        EXPECT_EQ(symbols, expected);
        DequantizeRuns(expected, runs, grid.grids(), actual);
        EXPECT_TRUE(SameBits(actual, expected_values));
      });
    });
  }
}

std::vector<std::uint8_t> OnOneGrid(const std::vector<float>& values, std::uint32_t top,
                                    float centre, float reach) {
  const float zero = 0.0F;
  const float one = 1.0F;
  Grids grids;
  grids.zero = {&zero, 1};
  grids.step = grids.inverse = {&one, 1};
  if (centre >= 0.0F) grids.centre = {&centre, 1};
  grids.top = top;
  grids.reach = reach;
  std::vector<std::uint8_t> symbols(values.size());
  QuantizeRuns(values, {values.size(), values.size()}, grids, symbols);
  return symbols;
}

TEST(Quantize, RoundsHalvesToEvenAndClamps) {
  ForEachIsa([&] {
    EXPECT_EQ(OnOneGrid({0.5F, 1.5F, 2.5F, -3.0F, 9.0F, 1e38F, -1e38F}, 7, -1.0F, 0.5F),
              (std::vector<std::uint8_t>{0, 2, 2, 0, 7, 7, 0}));
  });
}

TEST(Quantize, DeadZoneWidensTheCentreBinAlone) {
  ForEachIsa([&] {
    EXPECT_EQ(OnOneGrid({2.0F, 2.2F, 2.3F, 3.7F, 3.8F, 4.4F, 0.6F}, 6, 3.0F, 0.75F),
              (std::vector<std::uint8_t>{2, 2, 3, 3, 4, 4, 1}));
  });
}

}  // namespace
}  // namespace kvserve
