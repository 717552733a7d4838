// What a fuzzer lets a frame ask for, and what may come back.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

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

// Says what was broken, then ends the run so that libFuzzer keeps the input.
[[noreturn]] inline void Fail(const std::string& what) {
  std::fprintf(stderr, "contract broken: %s\n", what.c_str());
  std::abort();
}

// The outcome of decoding `size` bytes.
inline void CheckOutcome(const Result<std::size_t>& decoded, std::size_t size) {
  if (decoded && *decoded > size) Fail("a frame is longer than its bytes");
  if (!decoded && !AllowedError(decoded.error().code)) {
    Fail("bytes caused " + std::string(ErrorName(decoded.error().code)) + ": " +
         decoded.error().message);
  }
}

}  // namespace kvserve::fuzzing
