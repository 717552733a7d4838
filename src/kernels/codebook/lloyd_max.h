// Lloyd-Max codebooks of the standard normal distribution: the points and middles that minimise the
// mean squared error. Source: Max, "Quantizing for Minimum Distortion", 1960. The numbers are those
// of docs/FORMAT_STAGES.md, multiples of 2^-13.
#pragma once

#include <cstdint>

#include "kernels/codebook/codebook.h"

namespace kvserve {

// Of 2..kMostCodebookPoints points; lives as long as the process.
[[nodiscard]] Codebook LloydMaxCodebook(std::uint32_t points);

}  // namespace kvserve
