// How the grid of a range of values is chosen and written: the encoder quantizes with the very grid
// that the decoder reads. Typically two bytes per range; docs/FORMAT_STAGES.md has the bytes.
#pragma once

#include <cstdint>
#include <span>

#include "base/byte_io.h"
#include "kernels/minmax/minmax.h"
#include "kvserve/error.h"

namespace kvserve {

// Symbol q stands for zero + q * step; step 0: a single point.
struct Grid {
  float zero = 0.0F;
  float step = 0.0F;
  [[nodiscard]] float inverse() const { return step > 0.0F ? 1.0F / step : 0.0F; }
};

// Magnitudes that grids may span: values up to 2^112, steps from 2^-120. Planes outside are scaled
// by a power of two first.
inline constexpr float kLargestGridValue = 0x1p112F;

// Grids of `levels` (2..256) points for the ranges of one plane. Steps are 1 + i/16 times a power
// of two, rounded up, so that |x - zero - q step| <= step / 2 for every x of the range, and at most
// 17/16 of the exact (high - low) / (levels - 1) (or 2^-120); a range of equal values is exact.
class GridCode {
 public:
  GridCode(std::uint32_t levels, std::int16_t base) : levels_(levels), base_(base) {}
  // Base that gives the widest of `ranges` a short code.
  [[nodiscard]] static GridCode For(std::uint32_t levels, std::span<const MinMax> ranges);

  // Appends the code of a range with low <= high, both within kLargestGridValue.
  Grid Write(const MinMax& range, ByteWriter& out) const;
  // kCorruptData for truncated bytes or a grid that is not finite.
  [[nodiscard]] Result<Grid> Read(ByteReader& in) const;

  [[nodiscard]] std::int16_t base() const { return base_; }
  static constexpr std::size_t kMinBytes = 2;  // of one code

 private:
  std::uint32_t levels_;
  std::int16_t base_;  // exponent of the smallest step that has a short code
};

}  // namespace kvserve
