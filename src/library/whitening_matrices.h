// The two float32 matrices of a whitening, from its 8-bit form.
#pragma once

#include <optional>
#include <vector>

#include "library/transform_contents.h"

namespace kvserve {

// scale * inverse, [group][component][column], each rounded once.
[[nodiscard]] std::vector<float> DequantizedWhitening(const Whitening& whitening);

// Inverse of that, [group][column][component]: Gauss-Jordan elimination with row exchanges in
// float64, in an order of operations that does not depend on the machine. Nothing when a group's
// matrix is singular in float64, or its inverse does not fit float32.
[[nodiscard]] std::optional<std::vector<float>> InvertedWhitening(const Whitening& whitening);

}  // namespace kvserve
