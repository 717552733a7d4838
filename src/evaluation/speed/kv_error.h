// How far decoded KV is from what was encoded.
#pragma once

#include "kvserve/error.h"
#include "kvserve/view.h"

namespace kvserve {

// Root of the mean square error over the root of the mean square of the original, over all layers
// together, K and V apart. 0 for planes that are equal, or that are not there.
struct KvError {
  double k_rms_relative = 0.0;
  double v_rms_relative = 0.0;
};

// Contiguous planes of finite values; both of the same shapes (kInvalidArgument).
[[nodiscard]] Result<KvError> MeasureError(const ConstKvView& original, const ConstKvView& decoded);

}  // namespace kvserve
