// Values that a stage keeps beside its symbols, in 16 bits where that does them no harm.
#pragma once

#include <span>

#include "base/byte_io.h"
#include "kvserve/error.h"
#include "kvserve/geometry.h"

namespace kvserve {

// One byte, 0 for float16 or 1 for float32, then the values. float16 for a cache of 16 bits or less
// whose largest magnitude is 0 or in [2^-6, 65504]: it has 11 bits from there on.
void WriteRawFloats(DType cache, std::span<const float> values, ByteWriter& out);

// kCorruptData when the form is unknown or bytes are missing.
[[nodiscard]] Status ReadRawFloats(ByteReader& in, std::span<float> values);

}  // namespace kvserve
