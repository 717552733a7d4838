#include <algorithm>
#include <cmath>

#include "kernels/quantize/quantize.h"
#include "kernels/quantize/range_visit.h"

namespace kvserve {
namespace {

std::uint8_t Symbol(float value, const Grids& grids, std::size_t range) {
  const auto top = static_cast<float>(grids.top);
  float position = (value - grids.zero[range]) * grids.inverse[range];
  position = std::max(0.0F, std::min(position, top));
  if (!grids.centre.empty() && std::fabs(position - grids.centre[range]) < grids.reach) {
    position = grids.centre[range];
  }
  return static_cast<std::uint8_t>(std::nearbyint(position));
}

float Value(std::uint8_t symbol, const Grids& grids, std::size_t range) {
  const float point = grids.points.empty() ? static_cast<float>(symbol) : grids.points[symbol];
  return grids.zero[range] + point * grids.step[range];
}

}  // namespace

Grids Grids::Part(std::size_t first, std::size_t count) const {
  Grids part = *this;
  part.zero = zero.subspan(first, count);
  part.step = step.subspan(first, count);
  if (!inverse.empty()) part.inverse = inverse.subspan(first, count);
  if (!centre.empty()) part.centre = centre.subspan(first, count);
  return part;
}

void QuantizeColumnsRef(std::span<const float> values, const Grids& grids,
                        std::span<std::uint8_t> symbols) {
  ForEachOfColumns(values.size(), grids.zero.size(), [&](std::size_t i, std::size_t range) {
    symbols[i] = Symbol(values[i], grids, range);
  });
}

void DequantizeColumnsRef(std::span<const std::uint8_t> symbols, const Grids& grids,
                          std::span<float> values) {
  ForEachOfColumns(values.size(), grids.zero.size(), [&](std::size_t i, std::size_t range) {
    values[i] = Value(symbols[i], grids, range);
  });
}

void QuantizeRunsRef(std::span<const float> values, Runs runs, const Grids& grids,
                     std::span<std::uint8_t> symbols) {
  ForEachOfRuns(values.size(), runs, [&](std::size_t i, std::size_t range) {
    symbols[i] = Symbol(values[i], grids, range);
  });
}

void DequantizeRunsRef(std::span<const std::uint8_t> symbols, Runs runs, const Grids& grids,
                       std::span<float> values) {
  ForEachOfRuns(values.size(), runs, [&](std::size_t i, std::size_t range) {
    values[i] = Value(symbols[i], grids, range);
  });
}

}  // namespace kvserve
