// How many threads an encoder or decoder may have.
#pragma once

#include <cstdint>
#include <string>

#include "kvserve/error.h"

namespace kvserve {

// 1..256; kInvalidArgument otherwise.
[[nodiscard]] inline Status CheckThreads(std::uint32_t threads) {
  if (threads >= 1 && threads <= 256) return {};
  return MakeError(ErrorCode::kInvalidArgument,
                   "threads " + std::to_string(threads) + " is outside 1..256");
}

}  // namespace kvserve
