#include "kvserve/error.h"

namespace kvserve {

const char* ErrorName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInternal: return "internal";
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kBadInput: return "bad_input";
    case ErrorCode::kCorruptData: return "corrupt_data";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kBudgetExceeded: return "budget_exceeded";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kMismatch: return "mismatch";
    case ErrorCode::kDeadlineExceeded: return "deadline_exceeded";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kResourceExhausted: return "resource_exhausted";
    case ErrorCode::kPermissionDenied: return "permission_denied";
  }
  return "unknown";
}

int ExitStatus(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return 2;
    case ErrorCode::kBadInput:
    case ErrorCode::kUnsupported:
    case ErrorCode::kMismatch: return 3;
    case ErrorCode::kCorruptData: return 4;
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded: return 5;
    case ErrorCode::kBudgetExceeded: return 6;
    default: return 1;
  }
}

}  // namespace kvserve
