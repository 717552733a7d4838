// The row of the request's first token, which some quantizers keep apart in 16 bits (caches of 32:
// in those): attention sinks make it about 10^4 times as sensitive as others. All other rows of the
// plane have symbols.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/convert/raw_floats.h"
#include "pipeline/stage.h"

namespace kvserve {

[[nodiscard]] constexpr ParameterInfo RawFirstParameter(std::uint8_t id) {
  return {.id = id,
          .name = "raw_first",
          .type = ParameterType::kBoolean,
          .low = 0,
          .high = 1,
          .default_k = 1,
          .help = "keep the request's first token in 16 bits (fp32 caches: 32)"};
}

// Part of a quantizer's PlaneState; memory is the plane's arena's.
class RawFirstRow {
 public:
  // How many of the plane's rows are kept apart, 0 or 1.
  [[nodiscard]] static std::uint32_t Rows(bool on, const PlaneContext& plane) {
    return on && plane.tokens.begin == 0 && !plane.tokens.empty() ? 1 : 0;
  }

  RawFirstRow(bool on, const PlaneContext& plane, PlaneShape shape)
      : values_(plane.arena->Take<float>(Rows(on, plane) * std::size_t{shape.columns()})),
        dtype_(plane.frame->geometry->dtype) {}

  [[nodiscard]] std::uint32_t rows() const { return values_.empty() ? 0 : 1; }

  // Of each tile, encoder.
  void Keep(std::uint32_t first_row, ConstRealPlane tile) {
    if (first_row == 0) std::copy_n(tile.data, values_.size(), values_.begin());
  }
  void Write(ByteWriter& side) const {
    if (!values_.empty()) WriteRawFloats(dtype_, values_, side);
  }

  [[nodiscard]] Status Read(ByteReader& side) const {
    return values_.empty() ? Status() : ReadRawFloats(side, values_);
  }
  // Of each tile, decoder.
  void Restore(std::uint32_t first_row, RealPlane tile) const {
    if (first_row == 0) std::copy(values_.begin(), values_.end(), tile.data);
  }

  // The values of a tile that have symbols; `row` becomes the first of them among such rows.
  template <typename Plane>
  [[nodiscard]] auto Others(std::uint32_t first_row, const Plane& tile, std::size_t& row) const {
    const std::uint32_t skipped = first_row == 0 ? rows() : 0;
    row = first_row + skipped - rows();
    return tile.span().subspan(std::size_t{skipped} * tile.columns());
  }

 private:
  std::span<float> values_;  // [column] or empty
  DType dtype_ = DType::kFloat16;
};

}  // namespace kvserve
