// The 4-bit float E2M1 as a codebook: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, 15 points.
// Source: OCP Microscaling Formats (MX) Specification 1.0, 2023.
#pragma once

#include <array>

#include "kernels/codebook/codebook.h"

namespace kvserve {

inline constexpr float kLargestFloat4 = 6.0F;

inline constexpr std::array<float, 15> kFloat4Points = {-6.0F, -4.0F, -3.0F, -2.0F, -1.5F,
                                                        -1.0F, -0.5F, 0.0F,  0.5F,  1.0F,
                                                        1.5F,  2.0F,  3.0F,  4.0F,  6.0F};
inline constexpr std::array<float, 14> kFloat4Middles = {-5.0F,  -3.5F,  -2.5F, -1.75F, -1.25F,
                                                         -0.75F, -0.25F, 0.25F, 0.75F,  1.25F,
                                                         1.75F,  2.5F,   3.5F,  5.0F};

inline constexpr Codebook kFloat4 = {kFloat4Points, kFloat4Middles};

}  // namespace kvserve
