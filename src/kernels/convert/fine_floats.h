// A row of values in whole parts of a unit, mostly two bytes each.
#pragma once

#include <span>

#include "base/byte_io.h"
#include "kvserve/error.h"

namespace kvserve {

inline constexpr float kFineUnit = 0x1p-7F;

// Rounds finite values to the nearest multiples of kFineUnit, ties to even, unless a magnitude is
// 2^16 or more.
void RoundFineFloats(std::span<float> values);
// Appends what RoundFineFloats left. u8 form: 0, then per value n * kFineUnit a varint of 2 n if
// n >= 0, else -2 n - 1; or 1 where a magnitude is 2^16 or more, then float32 each.
void WriteFineFloats(std::span<const float> values, ByteWriter& out);
// kCorruptData for truncated bytes, another form, magnitudes above 2^16 in form 0, or values that
// are not finite.
[[nodiscard]] Status ReadFineFloats(ByteReader& in, std::span<float> values);

}  // namespace kvserve
