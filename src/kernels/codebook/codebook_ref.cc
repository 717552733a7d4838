#include <algorithm>
#include <array>
#include <limits>

#include "kernels/codebook/codebook.h"

namespace kvserve {

void QuantizeToCodebookRef(const Codebook& codebook, std::span<const float> values, float inverse,
                           std::span<std::uint8_t> symbols) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float scaled = values[i] * inverse;
    std::uint8_t below = 0;
    for (const float middle : codebook.middles) below += scaled > middle ? 1 : 0;
    symbols[i] = below;
  }
}

void DequantizeFromCodebook(const Codebook& codebook, std::span<const std::uint8_t> symbols,
                            float scale, std::span<float> values) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  std::array<float, kMostCodebookPoints> scaled{};
  for (std::size_t q = 0; q < codebook.points.size(); ++q) {
    scaled[q] = std::clamp(codebook.points[q] * scale, -kLargest, kLargest) + 0.0F;
  }
  for (std::size_t i = 0; i < symbols.size(); ++i) values[i] = scaled[symbols[i]];
}

double SumOfSquares(std::span<const float> values) {
  std::array<double, 4> sums{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    sums[i % 4] += value * value;
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace kvserve
