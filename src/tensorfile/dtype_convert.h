// Conversion of cache values between element types. Bits are never reinterpreted.
#pragma once

#include <cstdint>

#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "kvserve/view.h"

namespace kvserve {

enum class OutOfRangePolicy : std::uint8_t { kRefuse, kClamp };

// Copies `in` to `out` (resized, contiguous) as `dtype`, rounding to nearest even; NaN and infinity
// stay what they are. Finite values beyond the largest finite value of `dtype` (65504 for float16)
// are refused with kBadInput and their count, or clamped to it. Returns how many were clamped.
[[nodiscard]] Result<std::uint64_t> ConvertDType(const ConstKvView& in, DType dtype,
                                                 OutOfRangePolicy policy, KvBuffer& out);

}  // namespace kvserve
