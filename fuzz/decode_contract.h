// What a fuzzer lets a frame ask for, and what may come back.
#pragma once

#include <cstdint>

#include "kvserve/codec.h"

namespace kvserve::fuzzing {

inline DecodeOptions Limits() {
  DecodeOptions options;
  options.max_raw_bytes = std::uint64_t{16} << 20;
  return options;
}

// Bytes are never a fault of ours or of the caller: these four codes are all that they can cause.
[[nodiscard]] inline bool AllowedError(ErrorCode code) {
  return code == ErrorCode::kCorruptData || code == ErrorCode::kUnsupported ||
         code == ErrorCode::kMismatch || code == ErrorCode::kResourceExhausted;
}

}  // namespace kvserve::fuzzing
