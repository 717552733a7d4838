#include <algorithm>

#include "kernels/minmax/minmax.h"

namespace kvserve {

MinMax MinMaxSpanRef(std::span<const float> values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {*low, *high};
}

void MinMaxRunsRef(std::span<const float> values, Runs runs, std::span<float> low,
                   std::span<float> high) {
  std::size_t run = 0;
  for (std::size_t segment = 0; segment < values.size(); segment += runs.segment) {
    for (std::size_t at = 0; at < runs.segment; at += runs.group) {
      const std::size_t count = std::min(runs.group, runs.segment - at);
      const MinMax range = MinMaxSpanRef(values.subspan(segment + at, count));
      low[run] = range.low;
      high[run++] = range.high;
    }
  }
}

void WidenMinMaxColumnsRef(std::span<const float> values, std::span<float> low,
                           std::span<float> high) {
  const std::size_t columns = low.size();
  for (std::size_t at = 0; at < values.size(); at += columns) {
    for (std::size_t c = 0; c < columns; ++c) {
      low[c] = std::min(low[c], values[at + c]);
      high[c] = std::max(high[c], values[at + c]);
    }
  }
}

}  // namespace kvserve
