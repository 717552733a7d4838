// Which values of a plane [token, head, dim] share a range, and the kernels over any of its rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/quantize/quantize.h"
#include "kernels/quantize/range_visit.h"

namespace kvserve {

// What shares a range: a channel over the tokens or a block of them, a token, a group of channels
// of one token and head, or the plane.
enum class RangeAxis : std::uint8_t { kChannel = 0, kToken = 1, kGroup = 2, kTensor = 3 };

class RangeLayout {
 public:
  RangeLayout() = default;
  // Groups are of `group` channels, the last one of a head shorter. Channels have a range for every
  // `block` rows, the last block shorter; 0: one for all rows.
  RangeLayout(RangeAxis axis, std::size_t group, std::size_t rows, std::size_t heads,
              std::size_t dim, std::size_t block = 0)
      : axis_(axis),
        rows_(rows),
        heads_(heads),
        dim_(dim),
        group_(std::min(group, dim)),
        block_(block == 0 ? std::max<std::size_t>(rows, 1) : block) {}

  [[nodiscard]] std::size_t columns() const { return heads_ * dim_; }
  // Ranges of the plane.
  [[nodiscard]] std::size_t count() const;

  // Widens low and high, which begin as an empty range, by some rows. [range] of the plane.
  void Widen(std::size_t first_row, std::span<const float> values, std::span<float> low,
             std::span<float> high) const;
  // Of some rows, with the grids of the plane.
  void Quantize(std::size_t first_row, std::span<const float> values, const Grids& grids,
                std::span<std::uint8_t> symbols) const;
  void Dequantize(std::size_t first_row, std::span<const std::uint8_t> symbols, const Grids& grids,
                  std::span<float> values) const;

  // visit(value index, range of the plane) of some rows; slow.
  template <typename Visit>
  void ForEachValue(std::size_t first_row, std::size_t values, const Visit& visit) const;

 private:
  [[nodiscard]] std::size_t groups() const { return heads_ * ((dim_ + group_ - 1) / group_); }
  // The first that a row has a part in.
  [[nodiscard]] std::size_t FirstRange(std::size_t row) const;
  // Axis kChannel: visit(first value, values, first range) of each block that the rows touch.
  template <typename Visit>
  void ForEachBlock(std::size_t first_row, std::size_t values, const Visit& visit) const;
  [[nodiscard]] Runs RunsOf(std::size_t values) const;
  [[nodiscard]] Grids GridsOf(std::size_t first_row, std::size_t values, const Grids& grids) const;

  RangeAxis axis_ = RangeAxis::kChannel;
  std::size_t rows_ = 0, heads_ = 0, dim_ = 0, group_ = 1, block_ = 1;
};

template <typename Visit>
void RangeLayout::ForEachBlock(std::size_t first_row, std::size_t values,
                               const Visit& visit) const {
  std::size_t row = first_row;
  for (std::size_t at = 0; at < values;) {
    const std::size_t left = block_ - row % block_;
    const std::size_t count = std::min(left * columns(), values - at);
    visit(at, count, FirstRange(row));
    row += left;
    at += count;
  }
}

template <typename Visit>
void RangeLayout::ForEachValue(std::size_t first_row, std::size_t values,
                               const Visit& visit) const {
  if (values == 0) return;
  if (axis_ == RangeAxis::kChannel) {
    return ForEachBlock(
        first_row, values, [&](std::size_t at, std::size_t count, std::size_t first) {
          ForEachOfColumns(count, columns(), [&](std::size_t i, std::size_t column) {
            visit(at + i, first + column);
          });
        });
  }
  const std::size_t first = FirstRange(first_row);
  ForEachOfRuns(values, RunsOf(values),
                [&](std::size_t i, std::size_t range) { visit(i, first + range); });
}

}  // namespace kvserve
