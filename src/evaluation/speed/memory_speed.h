// Speed of memcpy: the yardstick of every other rate.
#pragma once

#include <cstdint>

#include "evaluation/speed/rate.h"
#include "kvserve/error.h"

namespace kvserve {

// Copies a buffer of `bytes` to another, each thread its part; all pages are touched before, and a
// byte that is read and written counts once. kResourceExhausted without memory.
[[nodiscard]] Result<Rate> MeasureMemcpy(std::uint64_t bytes, std::uint32_t threads,
                                         double seconds);

}  // namespace kvserve
