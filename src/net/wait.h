// Waiting for a descriptor, a time or a cancellation, whichever is first. For the .cc files of net.
#pragma once

#include "base/clock.h"
#include "kvserve/error.h"
#include "net/cancel_signal.h"

namespace kvserve {

// Returns once `descriptor` has one of the poll `events` (or an error or hang-up to report).
// kDeadlineExceeded, kCancelled. A deadline in the past still looks once.
[[nodiscard]] Status WaitReady(int descriptor, short events, Deadline deadline,
                               const CancelSignal* cancel);

// Waits until `time`; kCancelled before that.
[[nodiscard]] Status WaitUntil(Clock::time_point time, const CancelSignal* cancel);

}  // namespace kvserve
