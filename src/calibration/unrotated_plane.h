// Planes as the KLT sees them: float32, keys as they were before RoPE.
#pragma once

#include <cstdint>
#include <vector>

#include "kvserve/error.h"
#include "pipeline/plane_order.h"

namespace kvserve {

// Fills `out` [token, head, dim]. Keys of layers whose rotation is not known stay as they are.
// kBadInput when a value is not finite.
[[nodiscard]] Status LoadUnrotated(const KvGeometry& geometry,
                                   const OrderedPlane<const std::byte>& plane,
                                   std::vector<float>& out);

}  // namespace kvserve
