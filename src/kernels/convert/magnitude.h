// Whether float values stay within a bound, in one pass at the speed of memory.
#pragma once

#include <span>

namespace kvserve {

// No magnitude is above `bound` (finite, not negative), and nothing is NaN.
[[nodiscard]] bool MagnitudesWithin(float bound, std::span<const float> values);

// Oracle.
[[nodiscard]] bool MagnitudesWithinRef(float bound, std::span<const float> values);

}  // namespace kvserve
