// Blocks of rows: the same ranges and symbols by any division into tiles of rows.
#include "kernels/quantize/range_layout.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace kvserve {
namespace {

constexpr std::size_t kRows = 11;
constexpr std::size_t kColumns = 6;

std::vector<float> Values() {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> values(kRows * kColumns);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(RangeLayout, CountsBlocksOfRows) {
  const auto count = [](std::size_t rows, std::size_t block) {
    return RangeLayout(RangeAxis::kChannel, 8, rows, 2, 3, block).count();
  };
  EXPECT_EQ(count(11, 0), 6U);
  EXPECT_EQ(count(11, 4), 18U);
  EXPECT_EQ(count(12, 4), 18U);
  EXPECT_EQ(count(11, 100), 6U);
  EXPECT_EQ(count(0, 4), 0U);
  EXPECT_EQ(RangeLayout(RangeAxis::kToken, 8, 11, 2, 3, 4).count(), 11U);
}

TEST(RangeLayout, BlocksHaveRangesOfTheirOwnHoweverRowsAreCut) {
  const auto values = Values();
  const RangeLayout layout(RangeAxis::kChannel, 8, kRows, 2, 3, 4);
  std::vector<float> expected_low(18, std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& low = expected_low[i / kColumns / 4 * kColumns + i % kColumns];
    low = std::min(low, values[i]);
  }
  for (const std::size_t tile : {1U, 3U, 4U, 11U}) {
    std::vector<float> low(18, std::numeric_limits<float>::infinity());
    std::vector<float> high(18, -std::numeric_limits<float>::infinity());
    for (std::size_t row = 0; row < kRows; row += tile) {
      const std::size_t rows = std::min(tile, kRows - row);
      layout.Widen(row, std::span(values).subspan(row * kColumns, rows * kColumns), low, high);
    }
    EXPECT_EQ(low, expected_low) << tile;
  }
  layout.ForEachValue(2, 5 * kColumns, [&](std::size_t i, std::size_t range) {
    const std::size_t at = 2 * kColumns + i;
    EXPECT_EQ(range, at / kColumns / 4 * kColumns + at % kColumns);
  });
}

}  // namespace
}  // namespace kvserve
