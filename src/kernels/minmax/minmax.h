// Smallest and largest value per column of a matrix, or of runs of consecutive values. Values are
// finite. The sign of a zero result is unspecified, which is the only thing that may differ between
// instruction sets.
#pragma once

#include <cstddef>
#include <span>

namespace kvserve {

struct MinMax {
  float low = 0.0F;
  float high = 0.0F;
};

// How values divide into runs: segments of `segment` consecutive values, each cut into runs of
// `group` from its start, the last one shorter. group <= segment, neither is 0, and the values are
// whole segments. Runs are counted over the segments.
struct Runs {
  std::size_t segment = 0;
  std::size_t group = 0;
  [[nodiscard]] std::size_t per_segment() const { return (segment + group - 1) / group; }
  [[nodiscard]] std::size_t count(std::size_t values) const {
    return values / segment * per_segment();
  }
};

// Over a span of at least one value.
[[nodiscard]] MinMax MinMaxSpan(std::span<const float> values);

// Of each run; low and high are [run].
void MinMaxRuns(std::span<const float> values, Runs runs, std::span<float> low,
                std::span<float> high);

// Per column of `values` [row, column], at least one row; low and high are [column].
void MinMaxColumns(std::span<const float> values, std::span<float> low, std::span<float> high);

// The same, of `values` and of the low and high that are there already; any number of rows.
void WidenMinMaxColumns(std::span<const float> values, std::span<float> low, std::span<float> high);

// Oracles.
[[nodiscard]] MinMax MinMaxSpanRef(std::span<const float> values);
void MinMaxRunsRef(std::span<const float> values, Runs runs, std::span<float> low,
                   std::span<float> high);
void WidenMinMaxColumnsRef(std::span<const float> values, std::span<float> low,
                           std::span<float> high);

}  // namespace kvserve
