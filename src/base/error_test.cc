#include "kvserve/error.h"

#include <gtest/gtest.h>

namespace kvserve {
namespace {

// Names stand in metrics and JSON, values on the wire, statuses in scripts: none may move.
TEST(Error, NamesValuesAndStatusesArePinned) {
  constexpr struct {
    ErrorCode code;
    int value;
    const char* name;
    int status;
  } kPinned[] = {{ErrorCode::kInternal, 1, "internal", 1},
                 {ErrorCode::kInvalidArgument, 2, "invalid_argument", 2},
                 {ErrorCode::kBadInput, 3, "bad_input", 3},
                 {ErrorCode::kCorruptData, 4, "corrupt_data", 4},
                 {ErrorCode::kUnavailable, 5, "unavailable", 5},
                 {ErrorCode::kBudgetExceeded, 6, "budget_exceeded", 6},
                 {ErrorCode::kUnsupported, 7, "unsupported", 3},
                 {ErrorCode::kMismatch, 8, "mismatch", 3},
                 {ErrorCode::kDeadlineExceeded, 9, "deadline_exceeded", 5},
                 {ErrorCode::kCancelled, 10, "cancelled", 1},
                 {ErrorCode::kResourceExhausted, 11, "resource_exhausted", 1},
                 {ErrorCode::kPermissionDenied, 12, "permission_denied", 1}};
  for (const auto& row : kPinned) {
    EXPECT_EQ(static_cast<int>(row.code), row.value);
    EXPECT_STREQ(ErrorName(row.code), row.name);
    EXPECT_EQ(ExitStatus(row.code), row.status) << row.name;
  }
  EXPECT_STREQ(ErrorName(static_cast<ErrorCode>(99)), "unknown");
}

}  // namespace
}  // namespace kvserve
