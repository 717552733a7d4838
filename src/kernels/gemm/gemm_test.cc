#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

std::vector<float> Gaussian(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

constexpr float kUntouched = 77.0F;

TEST(Gemm, EveryTargetGivesTheOraclesBits) {
  for (const std::size_t depth : {1U, 3U, 64U, 128U, 301U}) {
    for (const std::size_t width : {1U, 5U, 8U, 16U, 33U, 64U, 100U}) {
      for (const std::size_t rows : {0U, 1U, 4U, 7U, 8U, 21U}) {
        const std::size_t stride = width + 3;
        const auto in = Gaussian(rows * depth, 1);
        const auto matrix = Gaussian(depth * width, 2);
        std::vector<float> expected(rows * stride, kUntouched);
        MultiplyRowsRef(in, depth, matrix, width, expected.data(), stride);
        ForEachIsa([&] {
          std::vector<float> out(rows * stride, kUntouched);
          MultiplyRows(in, depth, matrix, width, out.data(), stride);
          const std::size_t bytes = out.size() * sizeof(float);
          EXPECT_TRUE(bytes == 0 || std::memcmp(out.data(), expected.data(), bytes) == 0)
              << rows << " x " << depth << " x " << width;
        });
      }
    }
  }
}

TEST(Gemm, IsTheProductWithinItsBound) {
  constexpr std::size_t kDepth = 192;
  constexpr std::size_t kWidth = 40;
  const auto in = Gaussian(5 * kDepth, 3);
  const auto matrix = Gaussian(kDepth * kWidth, 4);
  std::vector<float> out(5 * kWidth);
  MultiplyRows(in, kDepth, matrix, kWidth, out.data(), kWidth);
  for (std::size_t row = 0; row < 5; ++row) {
    for (std::size_t j = 0; j < kWidth; ++j) {
      double sum = 0;
      double magnitude = 0;
      for (std::size_t k = 0; k < kDepth; ++k) {
        const double product = double{in[row * kDepth + k]} * matrix[k * kWidth + j];
        sum += product;
        magnitude += std::fabs(product);
      }
      EXPECT_NEAR(out[row * kWidth + j], sum, kDepth * 0x1p-23 * magnitude);
    }
  }
}

TEST(Gemm, TakesRowsTimesColumns) {
  const std::vector<float> in = {1, 2, 3, 4};
  const std::vector<float> matrix = {10, 20, 30, 1, 2, 3};
  std::vector<float> out(6);
  MultiplyRows(in, 2, matrix, 3, out.data(), 3);
  EXPECT_EQ(out, (std::vector<float>{12, 24, 36, 34, 68, 102}));
}

}  // namespace
}  // namespace kvserve
