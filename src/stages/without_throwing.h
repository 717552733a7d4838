// The edge of the library, which does not throw: a container that finds no memory is an error like
// any other.
#pragma once

#include <exception>
#include <string>

#include "kvserve/error.h"

namespace kvserve {

template <typename Work>
[[nodiscard]] auto WithoutThrowing(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& error) {  // bad_alloc, length_error, system_error of a thread
    return MakeError(ErrorCode::kResourceExhausted,
                     std::string("no memory or threads: ") + error.what());
  }
}

// 1..256; kInvalidArgument otherwise.
[[nodiscard]] inline Status CheckThreads(std::uint32_t threads) {
  if (threads >= 1 && threads <= 256) return {};
  return MakeError(ErrorCode::kInvalidArgument,
                   "threads " + std::to_string(threads) + " is outside 1..256");
}

}  // namespace kvserve
