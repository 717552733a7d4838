// Columns are taken in blocks of rows, so that the running extremes of a column are loaded and
// stored once per block. What is left of a row or run beyond whole vectors is covered by one more
// vector that ends with it: an extreme may be seen twice.
#include "kernels/minmax/minmax.h"

#include <algorithm>

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/minmax/minmax.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF = hn::Vec<F32>;

constexpr std::size_t kBlockRows = 8;

// At least one vector of values.
HWY_INLINE MinMax OfVectors(const float* values, std::size_t count) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  VF low = hn::LoadU(df, values + count - lanes);
  VF high = low;
  std::size_t i = 0;
  if (count >= 4 * lanes) {  // four chains: the extremes have a latency of several cycles
    VF low1 = low, low2 = low, low3 = low;
    VF high1 = low, high2 = low, high3 = low;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      const VF v0 = hn::LoadU(df, values + i);
      const VF v1 = hn::LoadU(df, values + i + lanes);
      const VF v2 = hn::LoadU(df, values + i + 2 * lanes);
      const VF v3 = hn::LoadU(df, values + i + 3 * lanes);
      low = hn::Min(low, v0);
      high = hn::Max(high, v0);
      low1 = hn::Min(low1, v1);
      high1 = hn::Max(high1, v1);
      low2 = hn::Min(low2, v2);
      high2 = hn::Max(high2, v2);
      low3 = hn::Min(low3, v3);
      high3 = hn::Max(high3, v3);
    }
    low = hn::Min(hn::Min(low, low1), hn::Min(low2, low3));
    high = hn::Max(hn::Max(high, high1), hn::Max(high2, high3));
  }
  for (; i + lanes <= count; i += lanes) {
    const VF v = hn::LoadU(df, values + i);
    low = hn::Min(low, v);
    high = hn::Max(high, v);
  }
  return {hn::GetLane(hn::MinOfLanes(df, low)), hn::GetLane(hn::MaxOfLanes(df, high))};
}

HWY_INLINE MinMax OfSpan(const float* values, std::size_t count) {
  if (count >= hn::Lanes(F32())) return OfVectors(values, count);
  MinMax range{values[0], values[0]};
  for (std::size_t i = 1; i < count; ++i) {
    range.low = std::min(range.low, values[i]);
    range.high = std::max(range.high, values[i]);
  }
  return range;
}

HWY_INLINE void WidenVector(const float* values, std::size_t rows, std::size_t columns, float* low,
                            float* high) {
  const F32 df;
  VF vector_low = hn::LoadU(df, low);
  VF vector_high = hn::LoadU(df, high);
  for (std::size_t row = 0; row < rows; ++row) {
    const VF v = hn::LoadU(df, values + row * columns);
    vector_low = hn::Min(vector_low, v);
    vector_high = hn::Max(vector_high, v);
  }
  hn::StoreU(vector_low, df, low);
  hn::StoreU(vector_high, df, high);
}

}  // namespace

MinMax SpanBulk(const float* values, std::size_t count) {
  return OfSpan(values, count);
}

void RunsBulk(const float* values, std::size_t segments, Runs runs, float* low, float* high) {
  for (std::size_t segment = 0; segment < segments; ++segment, values += runs.segment) {
    for (std::size_t at = 0; at < runs.segment; at += runs.group) {
      const MinMax range = OfSpan(values + at, std::min(runs.group, runs.segment - at));
      *low++ = range.low;
      *high++ = range.high;
    }
  }
}

// At least one vector of columns.
void ColumnsBulk(const float* values, std::size_t rows, std::size_t columns, float* low,
                 float* high) {
  const std::size_t lanes = hn::Lanes(F32());
  for (std::size_t row = 0; row < rows; row += kBlockRows, values += kBlockRows * columns) {
    const std::size_t block = std::min(kBlockRows, rows - row);
    std::size_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      WidenVector(values + c, block, columns, low + c, high + c);
    }
    if (c < columns) {
      c = columns - lanes;
      WidenVector(values + c, block, columns, low + c, high + c);
    }
  }
}

std::size_t FloatLanes() {
  return hn::Lanes(F32());
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(SpanBulk);
HWY_EXPORT(RunsBulk);
HWY_EXPORT(ColumnsBulk);
HWY_EXPORT(FloatLanes);

MinMax MinMaxSpan(std::span<const float> values) {
  if (UseScalarKernels()) return MinMaxSpanRef(values);
  return HWY_DYNAMIC_DISPATCH(SpanBulk)(values.data(), values.size());
}

void MinMaxRuns(std::span<const float> values, Runs runs, std::span<float> low,
                std::span<float> high) {
  if (UseScalarKernels()) return MinMaxRunsRef(values, runs, low, high);
  HWY_DYNAMIC_DISPATCH(RunsBulk)
  (values.data(), values.size() / runs.segment, runs, low.data(), high.data());
}

void MinMaxColumns(std::span<const float> values, std::span<float> low, std::span<float> high) {
  std::copy_n(values.begin(), low.size(), low.begin());
  std::copy_n(values.begin(), high.size(), high.begin());
  WidenMinMaxColumns(values.subspan(low.size()), low, high);
}

void WidenMinMaxColumns(std::span<const float> values, std::span<float> low,
                        std::span<float> high) {
  if (UseScalarKernels() || low.size() < HWY_DYNAMIC_DISPATCH(FloatLanes)()) {
    return WidenMinMaxColumnsRef(values, low, high);
  }
  HWY_DYNAMIC_DISPATCH(ColumnsBulk)
  (values.data(), values.size() / low.size(), low.size(), low.data(), high.data());
}

}  // namespace kvserve
#endif
