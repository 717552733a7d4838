#include "kernels/affine/affine.h"

#include <algorithm>

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/affine/affine.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;

// Row by row over as many whole vectors of columns as there are; returns how many columns.
template <class Visit>
HWY_INLINE std::size_t ForEachVector(std::size_t rows, std::size_t columns, std::size_t lanes,
                                     const Visit& visit) {
  const std::size_t whole = columns / lanes * lanes;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t c = 0; c < whole; c += lanes) visit(row * columns + c, c);
  }
  return whole;
}

struct Center {
  float* values;
  const float* mean;
  const float* factor;
  HWY_ATTR void operator()(std::size_t at, std::size_t c) const {
    const F32 d;
    const auto centerd = hn::Sub(hn::LoadU(d, values + at), hn::LoadU(d, mean + c));
    hn::StoreU(hn::Mul(centerd, hn::LoadU(d, factor + c)), d, values + at);
  }
};

struct Restore {
  float* values;
  const float* scale;
  const float* mean;
  HWY_ATTR void operator()(std::size_t at, std::size_t c) const {
    const F32 d;
    const auto scaled = hn::Mul(hn::LoadU(d, values + at), hn::LoadU(d, scale + c));
    hn::StoreU(hn::Add(scaled, hn::LoadU(d, mean + c)), d, values + at);
  }
};

}  // namespace

// Each returns how many leading columns it did.
// Several rows at a time, so that the sums of a column are loaded and stored once for all of them.
std::size_t SumVectors(const float* values, std::size_t rows, std::size_t columns, double* sums,
                       double* squares) {
  constexpr std::size_t kRows = 8;
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t whole = columns / lanes * lanes;
  for (std::size_t row = 0; row < rows; row += kRows) {
    const std::size_t some = std::min(kRows, rows - row);
    for (std::size_t c = 0; c < whole; c += lanes) {
      auto sum = hn::LoadU(d, sums + c);
      auto square = hn::LoadU(d, squares + c);
      const float* at = values + row * columns + c;
      for (std::size_t i = 0; i < some; ++i, at += columns) {
        const auto value = hn::PromoteTo(d, hn::LoadU(half, at));
        sum = hn::Add(sum, value);
        square = hn::Add(square, hn::Mul(value, value));
      }
      hn::StoreU(sum, d, sums + c);
      hn::StoreU(square, d, squares + c);
    }
  }
  return whole;
}

std::size_t CenterVectors(float* values, std::size_t rows, std::size_t columns, const float* mean,
                          const float* factor) {
  return ForEachVector(rows, columns, hn::Lanes(F32()), Center{values, mean, factor});
}

std::size_t RestoreVectors(float* values, std::size_t rows, std::size_t columns, const float* scale,
                           const float* mean) {
  return ForEachVector(rows, columns, hn::Lanes(F32()), Restore{values, scale, mean});
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(SumVectors);
HWY_EXPORT(CenterVectors);
HWY_EXPORT(RestoreVectors);

namespace {

std::size_t Rows(std::size_t values, std::size_t columns) {
  return columns == 0 ? 0 : values / columns;
}

// visit(value index, column) for the columns that vectors left over.
template <typename Visit>
void ForEachLeft(std::size_t values, std::size_t columns, std::size_t done, const Visit& visit) {
  if (done == columns) return;
  for (std::size_t at = 0; at < values; at += columns) {
    for (std::size_t c = done; c < columns; ++c) visit(at + c, c);
  }
}

}  // namespace

void AddColumnSums(std::span<const float> values, std::span<double> sums,
                   std::span<double> squares) {
  if (UseScalarKernels()) return AddColumnSumsRef(values, sums, squares);
  const std::size_t done = HWY_DYNAMIC_DISPATCH(SumVectors)(
      values.data(), Rows(values.size(), sums.size()), sums.size(), sums.data(), squares.data());
  ForEachLeft(values.size(), sums.size(), done, [&](std::size_t i, std::size_t c) {
    const double value = values[i];
    sums[c] += value;
    squares[c] += value * value;
  });
}

void CenterColumns(std::span<float> values, std::span<const float> mean,
                   std::span<const float> factor) {
  if (UseScalarKernels()) return CenterColumnsRef(values, mean, factor);
  const std::size_t done = HWY_DYNAMIC_DISPATCH(CenterVectors)(
      values.data(), Rows(values.size(), mean.size()), mean.size(), mean.data(), factor.data());
  ForEachLeft(values.size(), mean.size(), done,
              [&](std::size_t i, std::size_t c) { values[i] = (values[i] - mean[c]) * factor[c]; });
}

void RestoreColumns(std::span<float> values, std::span<const float> scale,
                    std::span<const float> mean) {
  if (UseScalarKernels()) return RestoreColumnsRef(values, scale, mean);
  const std::size_t done = HWY_DYNAMIC_DISPATCH(RestoreVectors)(
      values.data(), Rows(values.size(), mean.size()), mean.size(), scale.data(), mean.data());
  ForEachLeft(values.size(), mean.size(), done,
              [&](std::size_t i, std::size_t c) { values[i] = values[i] * scale[c] + mean[c]; });
}

}  // namespace kvserve
#endif
