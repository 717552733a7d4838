// The steps of a softmax that the oracle and the kernels share.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvserve {

// e^x for x <= 0 as 2^n e^r: n is x / ln 2 rounded to an integer by adding 1.5 * 2^23, whose low
// mantissa bits then hold it, and e^r its Taylor series.
inline constexpr float kLowestExponent = -87.0F;
inline constexpr float kLog2E = 1.44269504F;
inline constexpr float kRounder = 12582912.0F;
inline constexpr std::int32_t kRounderBits = 0x4B400000 - 127;  // less the exponent's bias
inline constexpr float kLn2High = 0.693359375F;                 // few digits: n * it is exact
inline constexpr float kLn2Low = -2.12194440e-4F;
inline constexpr float kSeries[] = {1.0F / 5040, 1.0F / 720, 1.0F / 120, 1.0F / 24,
                                    1.0F / 6,    1.0F / 2,   1.0F,       1.0F};

[[nodiscard]] inline float SoftmaxExp(float x) {
  x = std::max(x, kLowestExponent);
  const float shifted = x * kLog2E + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float series = kSeries[0];
  for (std::size_t i = 1; i < std::size(kSeries); ++i) series = series * r + kSeries[i];
  const std::uint32_t exponent =
      std::bit_cast<std::uint32_t>(shifted) - static_cast<std::uint32_t>(kRounderBits);
  return series * std::bit_cast<float>(exponent << 23);
}

inline constexpr std::size_t kSoftmaxSums = 16;

// Exponentials of the elements from `begin` on, each added to its sum.
inline void ExpAndSum(std::span<float> logits, std::size_t begin, float largest, float scale,
                      std::span<float, kSoftmaxSums> sums) {
  for (std::size_t i = begin; i < logits.size(); ++i) {
    logits[i] = SoftmaxExp((logits[i] - largest) * scale);
    sums[i % kSoftmaxSums] += logits[i];
  }
}

[[nodiscard]] inline float FoldSums(std::span<float, kSoftmaxSums> sums) {
  for (std::size_t half = kSoftmaxSums / 2; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

}  // namespace kvserve
