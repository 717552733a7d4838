#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/invert/invert.h"

namespace kvserve {
namespace {

bool BringPivot(std::size_t k, double* matrix, std::span<std::size_t> columns) {
  const std::size_t n = columns.size();
  std::size_t best = k;
  for (std::size_t i = k + 1; i < n; ++i) {
    if (std::fabs(matrix[i * n + k]) > std::fabs(matrix[best * n + k])) best = i;
  }
  if (best != k) {
    std::swap_ranges(matrix + k * n, matrix + (k + 1) * n, matrix + best * n);
    std::swap(columns[k], columns[best]);
  }
  const double pivot = matrix[k * n + k];
  return pivot != 0 && std::isfinite(pivot);
}

void Eliminate(std::size_t k, double* matrix, std::size_t n) {
  double* const own = matrix + k * n;
  const double inverse = 1.0 / own[k];
  own[k] = 1.0;
  for (std::size_t c = 0; c < n; ++c) own[c] *= inverse;
  for (std::size_t i = 0; i < n; ++i) {
    if (i == k) continue;
    double* const other = matrix + i * n;
    const double factor = other[k];
    other[k] = 0.0;
    for (std::size_t c = 0; c < n; ++c) other[c] -= factor * own[c];
  }
}

}  // namespace

bool InvertMatrixRef(std::span<double> matrix, std::span<std::size_t> columns) {
  std::iota(columns.begin(), columns.end(), std::size_t{0});
  for (std::size_t k = 0; k < columns.size(); ++k) {
    if (!BringPivot(k, matrix.data(), columns)) return false;
    Eliminate(k, matrix.data(), columns.size());
  }
  return true;
}

}  // namespace kvserve
