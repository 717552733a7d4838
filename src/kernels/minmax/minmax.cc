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
namespace hn = hwy::HWY_NAMESPACE;

void SpanBulk(const float* values, std::size_t count, float* low_high) {
  const hn::ScalableTag<float> df;
  const std::size_t lanes = hn::Lanes(df);
  float low = values[0];
  float high = values[0];
  std::size_t i = 0;
  if (count >= lanes) {
    auto vector_low = hn::LoadU(df, values);
    auto vector_high = vector_low;
    for (i = lanes; i + lanes <= count; i += lanes) {
      const auto v = hn::LoadU(df, values + i);
      vector_low = hn::Min(vector_low, v);
      vector_high = hn::Max(vector_high, v);
    }
    low = hn::GetLane(hn::MinOfLanes(df, vector_low));
    high = hn::GetLane(hn::MaxOfLanes(df, vector_high));
  }
  for (; i < count; ++i) {
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  low_high[0] = low;
  low_high[1] = high;
}

void ColumnsBulk(const float* values, std::size_t rows, std::size_t columns, float* low,
                 float* high) {
  const hn::ScalableTag<float> df;
  const std::size_t lanes = hn::Lanes(df);
  std::copy(values, values + columns, low);
  std::copy(values, values + columns, high);
  for (std::size_t row = 1; row < rows; ++row) {
    const float* in = values + row * columns;
    std::size_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      const auto v = hn::LoadU(df, in + c);
      hn::StoreU(hn::Min(hn::LoadU(df, low + c), v), df, low + c);
      hn::StoreU(hn::Max(hn::LoadU(df, high + c), v), df, high + c);
    }
    for (; c < columns; ++c) {
      low[c] = std::min(low[c], in[c]);
      high[c] = std::max(high[c], in[c]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(SpanBulk);
HWY_EXPORT(ColumnsBulk);

MinMax MinMaxSpan(std::span<const float> values) {
  if (UseScalarKernels()) return MinMaxSpanRef(values);
  float low_high[2];
  HWY_DYNAMIC_DISPATCH(SpanBulk)(values.data(), values.size(), low_high);
  return {low_high[0], low_high[1]};
}

void MinMaxColumns(std::span<const float> values, std::span<float> low, std::span<float> high) {
  if (UseScalarKernels()) return MinMaxColumnsRef(values, low, high);
  HWY_DYNAMIC_DISPATCH(ColumnsBulk)
  (values.data(), values.size() / low.size(), low.size(), low.data(), high.data());
}

}  // namespace kvserve
#endif
