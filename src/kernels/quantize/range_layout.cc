#include "kernels/quantize/range_layout.h"

namespace kvserve {

std::size_t RangeLayout::shared() const {
  if (axis_ == RangeAxis::kChannel) return columns();
  return axis_ == RangeAxis::kTensor ? 1 : 0;
}

std::size_t RangeLayout::FirstRange(std::size_t row) const {
  if (axis_ == RangeAxis::kToken) return row;
  return axis_ == RangeAxis::kGroup ? row * groups() : 0;
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
  if (axis_ == RangeAxis::kChannel) return WidenMinMaxColumns(values, low, high);
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
  if (axis_ == RangeAxis::kChannel) return QuantizeColumns(values, grids, symbols);
  QuantizeRuns(values, RunsOf(values.size()), GridsOf(first_row, values.size(), grids), symbols);
}

void RangeLayout::Dequantize(std::size_t first_row, std::span<const std::uint8_t> symbols,
                             const Grids& grids, std::span<float> values) const {
  if (values.empty()) return;
  if (axis_ == RangeAxis::kChannel) return DequantizeColumns(symbols, grids, values);
  DequantizeRuns(symbols, RunsOf(values.size()), GridsOf(first_row, values.size(), grids), values);
}

}  // namespace kvserve
