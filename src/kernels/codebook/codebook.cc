// Plain loops that compilers turn into vectors: one comparison per middle and value beats a search,
// since there are few middles.
#include "kernels/codebook/codebook.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace kvserve {
namespace {

constexpr std::size_t kPiece = 16;

}  // namespace

void QuantizeToCodebook(const Codebook& codebook, std::span<const float> values, float inverse,
                        std::span<std::uint8_t> symbols) {
  for (std::size_t at = 0; at < values.size(); at += kPiece) {
    const std::size_t count = std::min(kPiece, values.size() - at);
    std::array<float, kPiece> scaled{};
    std::array<std::int32_t, kPiece> below{};
    for (std::size_t i = 0; i < count; ++i) scaled[i] = values[at + i] * inverse;
    for (const float middle : codebook.middles) {
      for (std::size_t i = 0; i < kPiece; ++i) below[i] += scaled[i] > middle ? 1 : 0;
    }
    for (std::size_t i = 0; i < count; ++i) symbols[at + i] = static_cast<std::uint8_t>(below[i]);
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
