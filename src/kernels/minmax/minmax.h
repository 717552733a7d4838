// Smallest and largest value, per column of a matrix or of a span. Values are finite.
#pragma once

#include <span>

namespace kvserve {

struct MinMax {
  float low = 0.0F;
  float high = 0.0F;
};

// Over a span of at least one value. The sign of a zero result is unspecified, which is the only
// thing that may differ between instruction sets.
[[nodiscard]] MinMax MinMaxSpan(std::span<const float> values);

// Per column of `values` [row, column], at least one row; low and high are [column].
void MinMaxColumns(std::span<const float> values, std::span<float> low, std::span<float> high);

// Oracles.
[[nodiscard]] MinMax MinMaxSpanRef(std::span<const float> values);
void MinMaxColumnsRef(std::span<const float> values, std::span<float> low, std::span<float> high);

}  // namespace kvserve
