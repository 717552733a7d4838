#include <algorithm>
#include <cmath>

#include "kernels/quantize/quantize.h"

namespace kvserve {
namespace {

std::uint8_t Symbol(float value, float zero, float inverse, float top) {
  const float position = (value - zero) * inverse;
  return static_cast<std::uint8_t>(std::nearbyint(std::max(0.0F, std::min(position, top))));
}

}  // namespace

void QuantizeSpanRef(std::span<const float> values, float zero, float inverse, std::uint32_t top,
                     std::span<std::uint8_t> symbols) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    symbols[i] = Symbol(values[i], zero, inverse, static_cast<float>(top));
  }
}

void DequantizeSpanRef(std::span<const std::uint8_t> symbols, float zero, float step,
                       std::span<float> values) {
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    values[i] = zero + static_cast<float>(symbols[i]) * step;
  }
}

void QuantizeColumnsRef(std::span<const float> values, std::span<const float> zero,
                        std::span<const float> inverse, std::uint32_t top,
                        std::span<std::uint8_t> symbols) {
  for (std::size_t at = 0; at < values.size(); at += zero.size()) {
    for (std::size_t c = 0; c < zero.size(); ++c) {
      symbols[at + c] = Symbol(values[at + c], zero[c], inverse[c], static_cast<float>(top));
    }
  }
}

void DequantizeColumnsRef(std::span<const std::uint8_t> symbols, std::span<const float> zero,
                          std::span<const float> step, std::span<float> values) {
  for (std::size_t at = 0; at < symbols.size(); at += zero.size()) {
    for (std::size_t c = 0; c < zero.size(); ++c) {
      values[at + c] = zero[c] + static_cast<float>(symbols[at + c]) * step[c];
    }
  }
}

}  // namespace kvserve
