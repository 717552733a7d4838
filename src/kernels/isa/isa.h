// Which instruction set the kernels run on. By default the best of the machine; the environment
// variable KVSERVE_ISA (scalar, sse4, avx2, avx512, neon) pins one. "scalar" runs the `_ref.cc`
// oracles. Results are bit-equal on all of them, so pinning changes speed only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvserve/error.h"

namespace kvserve {

// Name of the instruction set that kernels use now.
[[nodiscard]] std::string_view ActiveIsa();

// Instruction sets of this build that the machine has, best first; the last is "scalar".
[[nodiscard]] std::vector<std::string_view> AvailableIsas();

// The instruction set in force, or why KVSERVE_ISA could not be followed: kInvalidArgument for an
// unknown name, kUnsupported for one that this machine or build lacks (the best is used then).
// Programs that talk to people report the error once.
[[nodiscard]] Result<std::string> PinnedIsa();

// Pins one of AvailableIsas() for the process; for tests and benchmarks. Not to be called while
// kernels run in other threads. Errors as PinnedIsa.
[[nodiscard]] Status SetIsa(std::string_view name);

// True when kernels must take their oracle. Every dispatching kernel asks this first, which also
// applies KVSERVE_ISA on the first call.
[[nodiscard]] bool UseScalarKernels();

}  // namespace kvserve
