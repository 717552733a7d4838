// Uniform quantization on a given grid: symbol q stands for zero + q * step.
//   quantize:   q = clamp(round_to_nearest_even((x - zero) * inverse), 0, top)
//   dequantize: x = zero + float(q) * step
// in float32, each operation rounded once; bit-identical on every instruction set. With inverse =
// 1 / step and x within the grid, |x - zero - q * step| <= step / 2 up to float32 rounding.
// Values are finite; a grid of one point has step = inverse = 0.
#pragma once

#include <cstdint>
#include <span>

namespace kvserve {

// One grid for all of `values`.
void QuantizeSpan(std::span<const float> values, float zero, float inverse, std::uint32_t top,
                  std::span<std::uint8_t> symbols);
void DequantizeSpan(std::span<const std::uint8_t> symbols, float zero, float step,
                    std::span<float> values);

// One grid per column of `values` [row, column]; zero, inverse and step are [column].
void QuantizeColumns(std::span<const float> values, std::span<const float> zero,
                     std::span<const float> inverse, std::uint32_t top,
                     std::span<std::uint8_t> symbols);
void DequantizeColumns(std::span<const std::uint8_t> symbols, std::span<const float> zero,
                       std::span<const float> step, std::span<float> values);

// Oracles.
void QuantizeSpanRef(std::span<const float> values, float zero, float inverse, std::uint32_t top,
                     std::span<std::uint8_t> symbols);
void DequantizeSpanRef(std::span<const std::uint8_t> symbols, float zero, float step,
                       std::span<float> values);
void QuantizeColumnsRef(std::span<const float> values, std::span<const float> zero,
                        std::span<const float> inverse, std::uint32_t top,
                        std::span<std::uint8_t> symbols);
void DequantizeColumnsRef(std::span<const std::uint8_t> symbols, std::span<const float> zero,
                          std::span<const float> step, std::span<float> values);

}  // namespace kvserve
