// The oracle's operations in another order of the matrix's elements, each element's own in the same
// order: some pivots are found at a time by working on their columns alone; what these do to the
// other columns is done behind, a strip of columns at a time, with a row's strip in registers from
// the first of the pivots to the last.
#include "kernels/invert/invert.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/invert/invert.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef KVSERVE_KERNELS_INVERT_PANEL
#define KVSERVE_KERNELS_INVERT_PANEL
namespace kvserve {

// Pivots that are found together.
inline constexpr std::size_t kInvertPanel = 32;

// Those of rows and columns [begin, begin + count).
struct InvertPanel {
  std::size_t begin = 0;
  std::size_t count = 0;
  std::array<double, kInvertPanel> inverse{};  // of the pivots
  std::vector<double> factors;                 // [row][pivot] of the panel, of rows other than its
};

}  // namespace kvserve
#endif

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kMostLanes = 8;

// One row's strip from pivot `first` on.
template <typename D, std::size_t kVectors>
HWY_INLINE void UpdateRow(D d, const double* factors, std::size_t first, std::size_t count,
                          const double* pivots, double* row) {
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<D> v[kVectors];
  for (std::size_t j = 0; j < kVectors; ++j) v[j] = hn::LoadU(d, row + j * lanes);
  for (std::size_t k = first; k < count; ++k) {
    const auto factor = hn::Set(d, factors[k]);
    for (std::size_t j = 0; j < kVectors; ++j) {
      v[j] = hn::Sub(v[j], hn::Mul(factor, hn::LoadU(d, pivots + (k * kVectors + j) * lanes)));
    }
  }
  for (std::size_t j = 0; j < kVectors; ++j) hn::StoreU(v[j], d, row + j * lanes);
}

// A strip that begins at `strip` of row 0.
template <typename D, std::size_t kVectors>
void UpdateStrip(D d, const InvertPanel& panel, std::size_t n, double* strip) {
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t width = kVectors * lanes;
  HWY_ALIGN double pivots[kInvertPanel * kVectors * kMostLanes];  // [pivot][column]
  for (std::size_t k = 0; k < panel.count; ++k) {
    double* const row = strip + (panel.begin + k) * n;
    UpdateRow<D, kVectors>(d, &panel.factors[(panel.begin + k) * kInvertPanel], 0, k, pivots, row);
    for (std::size_t c = 0; c < width; ++c) pivots[k * width + c] = row[c] * panel.inverse[k];
  }
  for (std::size_t i = 0; i < n; ++i) {
    const double* const factors = &panel.factors[i * kInvertPanel];
    double* const row = strip + i * n;
    if (i < panel.begin || i >= panel.begin + panel.count) {
      UpdateRow<D, kVectors>(d, factors, 0, panel.count, pivots, row);
      continue;
    }
    const std::size_t k = i - panel.begin;
    std::copy_n(pivots + k * width, width, row);
    UpdateRow<D, kVectors>(d, factors, k + 1, panel.count, pivots, row);
  }
}

void UpdateColumns(const InvertPanel& panel, std::size_t n, std::size_t begin, std::size_t end,
                   double* matrix) {
  using D = hn::CappedTag<double, kMostLanes>;
  constexpr std::size_t kVectors = 4;
  const std::size_t width = kVectors * hn::Lanes(D());
  std::size_t c = begin;
  for (; c + width <= end; c += width) UpdateStrip<D, kVectors>(D(), panel, n, matrix + c);
  for (; c < end; ++c) UpdateStrip<hn::CappedTag<double, 1>, 1>({}, panel, n, matrix + c);
}

}  // namespace

void UpdateOthers(const InvertPanel& panel, std::size_t n, double* matrix) {
  UpdateColumns(panel, n, 0, panel.begin, matrix);
  UpdateColumns(panel, n, panel.begin + panel.count, n, matrix);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(UpdateOthers);

namespace {

bool BringPivot(std::size_t k, InvertPanel& panel, double* matrix, std::span<std::size_t> columns) {
  const std::size_t n = columns.size();
  std::size_t best = k;
  for (std::size_t i = k + 1; i < n; ++i) {
    if (std::fabs(matrix[i * n + k]) > std::fabs(matrix[best * n + k])) best = i;
  }
  if (best != k) {
    std::swap_ranges(matrix + k * n, matrix + (k + 1) * n, matrix + best * n);
    const auto factors = panel.factors.begin();
    std::swap_ranges(factors + static_cast<std::ptrdiff_t>(k * kInvertPanel),
                     factors + static_cast<std::ptrdiff_t>((k + 1) * kInvertPanel),
                     factors + static_cast<std::ptrdiff_t>(best * kInvertPanel));
    std::swap(columns[k], columns[best]);
  }
  const double pivot = matrix[k * n + k];
  return pivot != 0 && std::isfinite(pivot);
}

// The panel's own columns.
void Eliminate(std::size_t k, InvertPanel& panel, double* matrix, std::size_t n) {
  double* const own = matrix + k * n;
  const std::size_t end = panel.begin + panel.count;
  const std::size_t pivot = k - panel.begin;
  panel.inverse[pivot] = 1.0 / own[k];
  own[k] = 1.0;
  for (std::size_t c = panel.begin; c < end; ++c) own[c] *= panel.inverse[pivot];
  for (std::size_t i = 0; i < n; ++i) {
    if (i == k) continue;
    double* const other = matrix + i * n;
    const double factor = other[k];
    panel.factors[i * kInvertPanel + pivot] = factor;
    other[k] = 0.0;
    for (std::size_t c = panel.begin; c < end; ++c) other[c] -= factor * own[c];
  }
}

}  // namespace

bool InvertMatrix(std::span<double> matrix, std::span<std::size_t> columns) {
  if (UseScalarKernels()) return InvertMatrixRef(matrix, columns);
  const std::size_t n = columns.size();
  std::iota(columns.begin(), columns.end(), std::size_t{0});
  InvertPanel panel;
  panel.factors.resize(n * kInvertPanel);
  for (; panel.begin < n; panel.begin += panel.count) {
    panel.count = std::min(kInvertPanel, n - panel.begin);
    for (std::size_t k = panel.begin; k < panel.begin + panel.count; ++k) {
      if (!BringPivot(k, panel, matrix.data(), columns)) return false;
      Eliminate(k, panel, matrix.data(), n);
    }
    HWY_DYNAMIC_DISPATCH(UpdateOthers)(panel, n, matrix.data());
  }
  return true;
}

}  // namespace kvserve
#endif
