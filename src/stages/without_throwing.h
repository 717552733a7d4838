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

}  // namespace kvserve
