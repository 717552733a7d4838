// The values of a matrix with the range that each belongs to, in order; for code that need not be
// fast.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/minmax/minmax.h"

namespace kvserve {

// visit(value index, range) of `values` values in runs.
template <typename Visit>
void ForEachOfRuns(std::size_t values, Runs runs, const Visit& visit) {
  std::size_t range = 0;
  for (std::size_t segment = 0; segment < values; segment += runs.segment) {
    for (std::size_t at = 0; at < runs.segment; at += runs.group, ++range) {
      const std::size_t end = std::min(at + runs.group, runs.segment);
      for (std::size_t i = at; i < end; ++i) visit(segment + i, range);
    }
  }
}

// The same where each column is a range.
template <typename Visit>
void ForEachOfColumns(std::size_t values, std::size_t columns, const Visit& visit) {
  for (std::size_t at = 0; at < values; at += columns) {
    for (std::size_t c = 0; c < columns; ++c) visit(at + c, c);
  }
}

}  // namespace kvserve
