#include "kernels/invert/invert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

std::vector<double> Random(std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::normal_distribution<double> normal;
  std::vector<double> matrix(n * n);
  for (double& value : matrix) value = normal(random);
  return matrix;
}

TEST(InvertMatrix, EveryTargetGivesTheOraclesBits) {
  for (const std::size_t n : {1U, 2U, 7U, 31U, 32U, 33U, 64U, 100U, 161U}) {
    auto expected = Random(n);
    std::vector<std::size_t> order(n);
    ASSERT_TRUE(InvertMatrixRef(expected, order));
    ForEachIsa([&] {
      auto matrix = Random(n);
      std::vector<std::size_t> columns(n);
      ASSERT_TRUE(InvertMatrix(matrix, columns));
      EXPECT_EQ(columns, order) << n;
      EXPECT_EQ(matrix, expected) << n;
    });
  }
}

TEST(InvertMatrix, IsTheInverse) {
  constexpr std::size_t kSize = 70;
  const auto matrix = Random(kSize);
  auto inverse = matrix;
  std::vector<std::size_t> columns(kSize);
  ASSERT_TRUE(InvertMatrix(inverse, columns));
  for (std::size_t i = 0; i < kSize; ++i) {
    for (std::size_t j = 0; j < kSize; ++j) {
      double sum = 0;
      for (std::size_t c = 0; c < kSize; ++c) sum += matrix[i * kSize + c] * inverse[c * kSize + j];
      EXPECT_NEAR(sum, i == columns[j] ? 1 : 0, 1e-9) << i << ' ' << j;
    }
  }
}

// In a column of the second panel, too.
TEST(InvertMatrix, SingularIsNoInverse) {
  ForEachIsa([] {
    for (const std::size_t n : {2U, 50U}) {
      auto matrix = Random(n);
      for (std::size_t i = 0; i < n; ++i) matrix[i * n + n - 1] = 0;
      std::vector<std::size_t> columns(n);
      EXPECT_FALSE(InvertMatrix(matrix, columns)) << n;
      matrix = Random(n);
      matrix[n * n - 1] = std::nan("");
      EXPECT_FALSE(InvertMatrix(matrix, columns)) << n;
    }
  });
}

}  // namespace
}  // namespace kvserve
