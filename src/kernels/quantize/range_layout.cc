#include "kernels/quantize/range_layout.h"

namespace kvserve {

std::size_t RangeLayout::count() const {
  if (rows_ == 0) return 0;
  if (axis_ == RangeAxis::kChannel) return FirstRange(rows_ - 1) + columns();
  return axis_ == RangeAxis::kTensor ? 1 : FirstRange(rows_);
}

std::size_t RangeLayout::FirstRange(std::size_t row) const {
  switch (axis_) {
    case RangeAxis::kChannel: return row / block_ * columns();
    case RangeAxis::kToken: return row;
    case RangeAxis::kGroup: return row * groups();
    case RangeAxis::kTensor: break;
  }
  return 0;
}

Runs RangeLayout::RunsOf(std::size_t values) const {
  if (axis_ == RangeAxis::kGroup) return {dim_, group_};
  if (axis_ == RangeAxis::kToken) return {columns(), columns()};
  return {values, values};
}

Grids RangeLayout::GridsOf(std::size_t first_row, std::size_t values, const Grids& grids) const {
  return grids.Part(FirstRange(first_row), RunsOf(values).count(values));
}

void RangeLayout::Widen(std::size_t first_row, std::span<const float> values, std::span<float> low,
                        std::span<float> high) const {
  if (values.empty()) return;
  if (axis_ == RangeAxis::kChannel) {
    return ForEachBlock(
        first_row, values.size(), [&](std::size_t at, std::size_t count, std::size_t first) {
          WidenMinMaxColumns(values.subspan(at, count), low.subspan(first, columns()),
                             high.subspan(first, columns()));
        });
  }
  if (axis_ == RangeAxis::kTensor) {
    const MinMax range = MinMaxSpan(values);
    low[0] = std::min(low[0], range.low);
    high[0] = std::max(high[0], range.high);
    return;
  }
  const Runs runs = RunsOf(values.size());
  const std::size_t first = FirstRange(first_row);
  const std::size_t ranges = runs.count(values.size());
  MinMaxRuns(values, runs, low.subspan(first, ranges), high.subspan(first, ranges));
}

void RangeLayout::Quantize(std::size_t first_row, std::span<const float> values, const Grids& grids,
                           std::span<std::uint8_t> symbols) const {
  if (values.empty()) return;
  if (axis_ == RangeAxis::kChannel) {
    return ForEachBlock(first_row, values.size(),
                        [&](std::size_t at, std::size_t count, std::size_t first) {
                          QuantizeColumns(values.subspan(at, count), grids.Part(first, columns()),
                                          symbols.subspan(at, count));
                        });
  }
  QuantizeRuns(values, RunsOf(values.size()), GridsOf(first_row, values.size(), grids), symbols);
}

void RangeLayout::Dequantize(std::size_t first_row, std::span<const std::uint8_t> symbols,
                             const Grids& grids, std::span<float> values) const {
  if (values.empty()) return;
  if (axis_ == RangeAxis::kChannel) {
    return ForEachBlock(
        first_row, values.size(), [&](std::size_t at, std::size_t count, std::size_t first) {
          DequantizeColumns(symbols.subspan(at, count), grids.Part(first, columns()),
                            values.subspan(at, count));
        });
  }
  DequantizeRuns(symbols, RunsOf(values.size()), GridsOf(first_row, values.size(), grids), values);
}

}  // namespace kvserve
