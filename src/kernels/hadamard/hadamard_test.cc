#include "kernels/hadamard/hadamard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kDims[] = {1,   2,   3,   4,   7,   8,   16,  31,  32,   64,   80,   96,
                                   100, 112, 120, 128, 192, 256, 512, 576, 1000, 1024, 2048, 8192};

std::vector<float> Gaussian(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::uint32_t> Signs(std::uint32_t seed, std::uint32_t layer, PlaneKind kind,
                                 std::uint32_t heads, std::uint32_t dim) {
  std::vector<std::uint32_t> signs(std::size_t{heads} * dim);
  HadamardSigns(seed, layer, kind, dim, signs);
  return signs;
}

double Norm(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

TEST(Hadamard, EveryTargetGivesTheOraclesBits) {
  for (const auto dim : kDims) {
    const auto signs = Signs(5, 3, PlaneKind::kKey, 3, dim);
    const auto input = Gaussian(std::size_t{4 + 1200 / dim} * 3 * dim, dim);  // several blocks
    auto forward = input;
    auto inverse = input;
    HadamardForwardRef(forward, signs, dim);
    HadamardInverseRef(inverse, signs, dim);
    ForEachIsa([&] {
      auto values = input;
      HadamardForward(values, signs, dim);
      EXPECT_EQ(std::memcmp(values.data(), forward.data(), values.size() * 4), 0) << dim;
      values = input;
      HadamardInverse(values, signs, dim);
      EXPECT_EQ(std::memcmp(values.data(), inverse.data(), values.size() * 4), 0) << dim;
    });
  }
}

TEST(Hadamard, InverseUndoesForwardAndNormIsKept) {
  for (const auto dim : kDims) {
    const auto signs = Signs(0x3333, 0, PlaneKind::kValue, 2, dim);
    const auto input = Gaussian(std::size_t{2} * dim, dim + 1);
    auto values = input;
    HadamardForward(values, signs, dim);
    EXPECT_NEAR(Norm(values), Norm(input), 1e-5 * Norm(input)) << dim;
    HadamardInverse(values, signs, dim);
    for (std::size_t i = 0; i < input.size(); ++i) values[i] -= input[i];
    EXPECT_LE(Norm(values), 0x1p-20 * Norm(input)) << dim;
  }
}

TEST(Hadamard, SpreadsOneOutlierEvenlyOverItsPart) {
  constexpr std::uint32_t kDim = 80;  // 64 + 16
  const auto signs = Signs(1, 1, PlaneKind::kKey, 1, kDim);
  std::vector<float> values(kDim, 0.0F);
  values[5] = 8.0F;
  values[70] = 4.0F;
  HadamardForward(values, signs, kDim);
  for (std::uint32_t d = 0; d < kDim; ++d) EXPECT_EQ(std::fabs(values[d]), 1.0F) << d;
}

TEST(Hadamard, LargestValuesDoNotOverflowOnTheWay) {
  constexpr std::uint32_t kDim = 128;
  const auto signs = Signs(1, 1, PlaneKind::kKey, 1, kDim);
  std::vector<float> values(kDim, 0.0F);
  for (std::uint32_t d = 0; d < 100; ++d) values[d] = signs[d] == 0 ? 3e37F : -3e37F;
  HadamardForward(values, signs, kDim);
  for (const float value : values) ASSERT_TRUE(std::isfinite(value));
  EXPECT_GT(values[0], 2e38F);
}

TEST(HadamardSigns, ArePinned) {
  // On the wire by their seed: a change of these bits would garble every stored frame.
  const auto signs = Signs(0x3333, 7, PlaneKind::kValue, 2, 64);
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  for (std::size_t d = 0; d < 64; ++d) {
    first |= std::uint64_t{signs[d] >> 31} << d;
    second |= std::uint64_t{signs[64 + d] >> 31} << d;
  }
  EXPECT_EQ(first, 0x944036C5797322F9U);
  EXPECT_EQ(second, 0xF82088A8417C0015U);
}

TEST(HadamardSigns, DifferByLayerPlaneHeadAndSeed) {
  std::set<std::vector<std::uint32_t>> seen;
  for (const std::uint32_t seed : {1U, 2U, 0x7FFFFFFFU}) {
    for (std::uint32_t layer = 0; layer < 4; ++layer) {
      for (const auto kind : {PlaneKind::kKey, PlaneKind::kValue}) {
        const auto signs = Signs(seed, layer, kind, 3, 64);
        for (int head = 0; head < 3; ++head) {
          seen.insert({signs.begin() + head * 64, signs.begin() + head * 64 + 64});
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 3U * 4 * 2 * 3);
}

}  // namespace
}  // namespace kvserve
