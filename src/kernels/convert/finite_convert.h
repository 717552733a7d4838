// Conversion of finite values between the cache's element types and float32, checked in the same
// pass: what an encoder loads and what a decoder stores.
#pragma once

#include <cstddef>
#include <span>

#include "kvserve/geometry.h"

namespace kvserve {

// Widens like ToFloat and returns whether every value is finite. Bit-identical on every instruction
// set, except that a NaN may come out as another NaN.
[[nodiscard]] bool ToFloatFinite(DType dtype, std::span<const std::byte> in, std::span<float> out);

// Narrows to `dtype`, round to nearest even; magnitudes beyond the type's largest finite value,
// infinity included, become that value. Returns false if a value is NaN; then it is unspecified
// what `out` holds. `out` has in.size() elements. Bit-identical on every instruction set.
[[nodiscard]] bool FromFloatFinite(DType dtype, std::span<const float> in,
                                   std::span<std::byte> out);

// Oracles.
[[nodiscard]] bool ToFloatFiniteRef(DType dtype, std::span<const std::byte> in,
                                    std::span<float> out);
[[nodiscard]] bool FromFloatFiniteRef(DType dtype, std::span<const float> in,
                                      std::span<std::byte> out);

}  // namespace kvserve
