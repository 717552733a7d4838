// Uniform quantization on given grids: symbol q stands for zero + q * step.
//   quantize:   p = clamp((x - zero) * inverse, 0, top);  q = round_to_nearest_even(p), but
//               q = centre when |p - centre| < reach (the dead zone)
//   dequantize: x = zero + points[q] * step, where points[q] = q unless given
// in float32, each operation rounded once; bit-identical on every instruction set. With inverse =
// 1 / step, x within the grid and no dead zone, |x - zero - q * step| <= step / 2 up to float32
// rounding. Values are finite; a grid of one point has step = inverse = 0.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/minmax/minmax.h"

namespace kvserve {

// One grid per range, all spans [range]. `centre` is empty without a dead zone; a range that has
// none within its grid has a centre far outside (kNoCentre). Quantizing reads all but `step`,
// dequantizing zero and step.
struct Grids {
  std::span<const float> zero, step, inverse, centre;
  std::uint32_t top = 0;  // highest symbol, 255 at most
  float reach = 0.5F;     // of the centre, in steps
  // [256] where each symbol lies, in steps from zero; empty: at its own number.
  std::span<const float> points;

  // The same with the grids from `first` on, `count` of them.
  [[nodiscard]] Grids Part(std::size_t first, std::size_t count) const;
};

inline constexpr float kNoCentre = -1e6F;

// One range per column of `values` [row, column].
void QuantizeColumns(std::span<const float> values, const Grids& grids,
                     std::span<std::uint8_t> symbols);
void DequantizeColumns(std::span<const std::uint8_t> symbols, const Grids& grids,
                       std::span<float> values);

// One range per run.
void QuantizeRuns(std::span<const float> values, Runs runs, const Grids& grids,
                  std::span<std::uint8_t> symbols);
void DequantizeRuns(std::span<const std::uint8_t> symbols, Runs runs, const Grids& grids,
                    std::span<float> values);

// Oracles.
void QuantizeColumnsRef(std::span<const float> values, const Grids& grids,
                        std::span<std::uint8_t> symbols);
void DequantizeColumnsRef(std::span<const std::uint8_t> symbols, const Grids& grids,
                          std::span<float> values);
void QuantizeRunsRef(std::span<const float> values, Runs runs, const Grids& grids,
                     std::span<std::uint8_t> symbols);
void DequantizeRunsRef(std::span<const std::uint8_t> symbols, Runs runs, const Grids& grids,
                       std::span<float> values);

}  // namespace kvserve
