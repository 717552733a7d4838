// Copies a plane into another memory order: out of an engine's blocks and into them.
#pragma once

#include "kvserve/view.h"

namespace kvserve {

// Copies every element of `from` to `to`: host planes [token, head, dim] of the same shape and
// dtype, any strides, no overlap. Bits are kept, on every instruction set. Fast when both sides
// keep a head's values together (rows are copied) or when one side has them transposed, tokens
// together (dim_stride or token_stride 1); other strides go element by element.
void CopyPlane(const ConstPlaneView& from, const PlaneView& to);

// Oracle.
void CopyPlaneRef(const ConstPlaneView& from, const PlaneView& to);

}  // namespace kvserve
