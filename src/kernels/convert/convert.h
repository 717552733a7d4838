// Conversion between the cache's element types and float32, contiguous spans on the host.
#pragma once

#include <cstddef>
#include <span>

#include "kvserve/geometry.h"

namespace kvserve {

// Widens `in` (out.size() elements of `dtype`, no alignment needed) to float32, exactly; subnormals
// and infinities included, NaN stays NaN. dtype is any but uint8, which holds
// no numbers (checked at the boundary; nothing is written for it). Bit-identical on every
// instruction set.
void ToFloat(DType dtype, std::span<const std::byte> in, std::span<float> out);

// Narrows to `dtype`, round to nearest even. Finite values beyond the type's range become its
// largest finite value, since a reconstruction near the limit must not turn into infinity; returns
// how many did, among them infinities where the type has none. NaN and other infinities are kept.
// `out` holds in.size() elements. Bit-identical on every instruction set.
std::size_t FromFloat(DType dtype, std::span<const float> in, std::span<std::byte> out);

// Oracles.
void ToFloatRef(DType dtype, std::span<const std::byte> in, std::span<float> out);
std::size_t FromFloatRef(DType dtype, std::span<const float> in, std::span<std::byte> out);

}  // namespace kvserve
