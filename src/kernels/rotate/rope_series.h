// Constants of the series for sine and cosine; docs/FORMAT_STAGES.md, "Transform unrope".
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvserve {

inline constexpr std::size_t kRopePadding = 16;  // pairs

// An angle is q quarters of a circle and z radians, abs(z) <= pi / 4:
//   q = (phase + 2^61) >> 62,  x = (phase - q 2^62) >> 11 (arithmetic),  z = x * kRadians
inline constexpr int kPhaseShift = 11;
inline constexpr double kRadians = 6.283185307179586 * 0x1p-53;

// Inverse factorials with their signs, highest first. sin z = z P(z^2), cos z = P(z^2); the first
// terms left out are below 2^-54.
inline constexpr double kSine[] = {
    -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0,
    -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0,        1.0};
inline constexpr double kCosine[] = {1.0 / 20922789888000.0,
                                     -1.0 / 87178291200.0,
                                     1.0 / 479001600.0,
                                     -1.0 / 3628800.0,
                                     1.0 / 40320.0,
                                     -1.0 / 720.0,
                                     1.0 / 24.0,
                                     -1.0 / 2.0,
                                     1.0};

}  // namespace kvserve
