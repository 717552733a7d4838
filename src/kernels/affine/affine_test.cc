#include "kernels/affine/affine.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

std::vector<float> Gaussian(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(3.0F, 2.0F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(Affine, EveryTargetGivesTheOraclesBits) {
  for (const std::size_t columns : {1U, 3U, 15U, 16U, 64U, 100U}) {
    for (const std::size_t rows : {0U, 1U, 7U, 33U}) {
      const auto input = Gaussian(rows * columns, 1);
      const auto mean = Gaussian(columns, 2);
      const auto scale = Gaussian(columns, 3);
      std::vector<double> sums(columns, 0.5), squares(columns, 0.25);
      auto expected_sums = sums, expected_squares = squares;
      AddColumnSumsRef(input, expected_sums, expected_squares);
      auto centerd = input, restored = input;
      CenterColumnsRef(centerd, mean, scale);
      RestoreColumnsRef(restored, scale, mean);
      ForEachIsa([&] {
        auto actual_sums = sums, actual_squares = squares;
        AddColumnSums(input, actual_sums, actual_squares);
        EXPECT_EQ(actual_sums, expected_sums) << columns << " x " << rows;
        EXPECT_EQ(actual_squares, expected_squares);
        auto values = input;
        CenterColumns(values, mean, scale);
        EXPECT_EQ(values, centerd);
        values = input;
        RestoreColumns(values, scale, mean);
        EXPECT_EQ(values, restored);
      });
    }
  }
}

TEST(Affine, SumsAreThoseOfTheColumns) {
  const std::vector<float> values = {1.0F, 10.0F, 2.0F, -20.0F};
  std::vector<double> sums(2), squares(2);
  AddColumnSums(values, sums, squares);
  EXPECT_EQ(sums, (std::vector<double>{3.0, -10.0}));
  EXPECT_EQ(squares, (std::vector<double>{5.0, 500.0}));
}

}  // namespace
}  // namespace kvserve
