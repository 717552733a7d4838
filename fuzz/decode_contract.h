// What a fuzzer lets a frame ask for, and what may come back.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "kernels/isa/isa.h"
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

[[nodiscard]] inline bool SamePlane(const ConstPlaneView& a, const ConstPlaneView& b) {
  return a.values() == b.values() &&
         (a.values() == 0 || std::memcmp(a.data, b.data, a.values() * DTypeBytes(a.dtype)) == 0);
}

// Bit by bit, for contiguous planes.
inline void CheckSame(const ConstKvView& a, const ConstKvView& b, const char* what) {
  if (a.layers.size() != b.layers.size()) Fail(std::string(what) + ": other layers");
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    if (!SamePlane(a.layers[i].k, b.layers[i].k) || !SamePlane(a.layers[i].v, b.layers[i].v)) {
      Fail(std::string(what) + ": layer " + std::to_string(i) + " differs");
    }
  }
}

// Pins an instruction set for a scope; results must be those of the machine's best.
class PinnedKernels {
 public:
  explicit PinnedKernels(std::string_view isa) : before_(ActiveIsa()) { Pin(isa); }
  ~PinnedKernels() { Pin(before_); }
  PinnedKernels(const PinnedKernels&) = delete;
  PinnedKernels& operator=(const PinnedKernels&) = delete;

 private:
  static void Pin(std::string_view name) {
    if (!SetIsa(name)) Fail("cannot pin " + std::string(name));
  }
  std::string before_;
};

// The oracles for a scope.
class ScalarKernels : private PinnedKernels {
 public:
  ScalarKernels() : PinnedKernels("scalar") {}
};

}  // namespace kvserve::fuzzing
