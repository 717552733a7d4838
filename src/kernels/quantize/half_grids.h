// Grids whose numbers are float16, as published methods keep them: zero (unless the grid is
// symmetric) and step of each range, nearest to the lowest value and to the exact step.
// docs/FORMAT_STAGES.md, "Quantizer uniform", has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/byte_io.h"
#include "kernels/quantize/grid_code.h"
#include "kvserve/error.h"

namespace kvserve {

// The power of two by which a plane of this largest magnitude is multiplied first, so that float16
// has its numbers: 0 for magnitudes of 0 or in [2^-10, 2^14). -114..126.
[[nodiscard]] std::int8_t HalfGridShift(float largest);
inline constexpr std::int8_t kLeastHalfGridShift = -114;
inline constexpr std::int8_t kLargestHalfGridShift = 126;

// Of one range.
[[nodiscard]] constexpr std::size_t HalfGridBytes(GridForm form) {
  return form == GridForm::kSymmetric ? 2 : 4;
}

// Of ranges with low <= high, already shifted; all spans [range]. kSpanZero is as kSpan. With L
// levels a value of a range is within (1 + 2^-11) / 2 steps of its point, plus what the float16s
// are off: 2^-11 of |low| and of L - 1 steps, or 2^-25 and L times that.
void WriteHalfGrids(std::uint32_t levels, GridForm form, std::span<const float> low,
                    std::span<const float> high, std::span<float> zero, std::span<float> step,
                    ByteWriter& out);

// Of [range] spans. kCorruptData for missing bytes, a number that is not finite or a negative step.
[[nodiscard]] Status ReadHalfGrids(std::uint32_t levels, GridForm form, ByteReader& in,
                                   std::span<float> zero, std::span<float> step);

}  // namespace kvserve
