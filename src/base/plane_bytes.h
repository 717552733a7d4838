// Elements of a host plane as contiguous bytes and back, whatever its strides.
#pragma once

#include <cstddef>
#include <span>

#include "kvserve/view.h"

namespace kvserve {

// Copies the elements in [token, head, dim] order. `out` has plane.values() * DTypeBytes(dtype)
// bytes and does not overlap the plane.
void GatherBytes(const ConstPlaneView& plane, std::span<std::byte> out);

// The inverse, on as many bytes.
void ScatterBytes(std::span<const std::byte> in, const PlaneView& plane);

}  // namespace kvserve
