// What a fuzzer lets a frame ask for.
#pragma once

#include <cstdint>

#include "kvserve/codec.h"

namespace kvserve::fuzzing {

inline DecodeOptions Limits() {
  DecodeOptions options;
  options.max_raw_bytes = std::uint64_t{16} << 20;
  return options;
}

}  // namespace kvserve::fuzzing
