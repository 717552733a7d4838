// Offsets and scales of columns: statistics over rows, and taking them out and putting them back.
#pragma once

#include <span>

namespace kvserve {

// `values` is [row, column] throughout, with as many columns as the other spans have elements. All
// is bit-identical on every instruction set: rows in ascending order, each operation rounded alone.

// Adds each column's values to `sums` and their squares to `squares`.
void AddColumnSums(std::span<const float> values, std::span<double> sums,
                   std::span<double> squares);

// value = (value - mean) * factor, in place.
void CenterColumns(std::span<float> values, std::span<const float> mean,
                   std::span<const float> factor);

// value = value * scale + mean, in place.
void RestoreColumns(std::span<float> values, std::span<const float> scale,
                    std::span<const float> mean);

// Oracles.
void AddColumnSumsRef(std::span<const float> values, std::span<double> sums,
                      std::span<double> squares);
void CenterColumnsRef(std::span<float> values, std::span<const float> mean,
                      std::span<const float> factor);
void RestoreColumnsRef(std::span<float> values, std::span<const float> scale,
                       std::span<const float> mean);

}  // namespace kvserve
