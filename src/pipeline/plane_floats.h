// Planes of a cache as float32 and back: any strides, fp16, bf16 and fp32.
#pragma once

#include <optional>
#include <span>

#include "kvserve/view.h"

namespace kvserve {

// Copies a plane to contiguous float32 [token, head, dim], exactly. `out` has plane.values()
// floats.
void LoadFloats(const ConstPlaneView& plane, std::span<float> out);

// Rounds float32 [token, head, dim] to the plane's dtype, to nearest even. Magnitudes beyond the
// dtype's largest finite value (65504 for fp16), infinity included, become that value. False, and
// nothing is stored, when a value is NaN.
[[nodiscard]] bool StoreFloats(std::span<const float> values, const PlaneView& plane);

// Index of the first NaN or infinity.
[[nodiscard]] std::optional<std::size_t> FindNonFinite(std::span<const float> values);

}  // namespace kvserve
