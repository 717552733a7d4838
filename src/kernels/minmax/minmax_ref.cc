#include <algorithm>

#include "kernels/minmax/minmax.h"

namespace kvserve {

MinMax MinMaxSpanRef(std::span<const float> values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {*low, *high};
}

void MinMaxColumnsRef(std::span<const float> values, std::span<float> low, std::span<float> high) {
  const std::size_t columns = low.size();
  for (std::size_t c = 0; c < columns; ++c) low[c] = high[c] = values[c];
  for (std::size_t at = columns; at < values.size(); at += columns) {
    for (std::size_t c = 0; c < columns; ++c) {
      low[c] = std::min(low[c], values[at + c]);
      high[c] = std::max(high[c], values[at + c]);
    }
  }
}

}  // namespace kvserve
