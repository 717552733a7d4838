// Error values of the whole library: one enum with pinned values, carried by tl::expected.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace kvserve {

// Values are part of the C ABI and of the network protocol: never renumber, never reuse.
enum class ErrorCode : std::int32_t {
  kInternal = 1,            // a fault of ours
  kInvalidArgument = 2,     // wrong usage or configuration
  kBadInput = 3,            // a file or tensor that cannot be used as asked
  kCorruptData = 4,         // bytes that contradict their own checksum, lengths or format
  kUnavailable = 5,         // peer or store not reachable
  kBudgetExceeded = 6,      // quality or SLO cannot be met
  kUnsupported = 7,         // well-formed, but this build does not do it (version, dtype, stage)
  kMismatch = 8,            // two sides do not fit: model, geometry, protocol, key
  kDeadlineExceeded = 9,    // the request's deadline passed
  kCancelled = 10,          // the caller or the peer gave up
  kResourceExhausted = 11,  // a stated limit (memory, queue, connections) would be passed
  kPermissionDenied = 12,   // wrong or missing token
};

// What went wrong, in one line: what, where, which value, what would be right.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

[[nodiscard]] inline tl::unexpected<Error> MakeError(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

// Stable lower-case name, e.g. "corrupt_data"; used in logs, metrics labels and JSON.
[[nodiscard]] const char* ErrorName(ErrorCode code);

// The exit status of the command line for an error: 2 usage, 3 bad input, 4 corrupt, 5 unavailable,
// 6 budget, 1 anything else.
[[nodiscard]] int ExitStatus(ErrorCode code);

}  // namespace kvserve
