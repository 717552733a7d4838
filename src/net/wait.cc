#include "net/wait.h"

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <string>

namespace kvserve {
namespace {

// Bounds one poll, so that far deadlines do not overflow; a signal without descriptor is looked at
// ten times a second instead of waking us.
timespec PollTime(Deadline deadline, const CancelSignal* cancel) {
  using std::chrono::nanoseconds;
  const bool must_look = cancel != nullptr && cancel->descriptor() < 0;
  const nanoseconds longest = must_look ? std::chrono::milliseconds(100) : std::chrono::hours(1);
  const auto now = Clock::now();
  nanoseconds left{0};
  if (deadline > now) left = deadline - now > longest ? longest : nanoseconds(deadline - now);
  timespec time{};
  time.tv_sec = static_cast<std::time_t>(left.count() / 1'000'000'000);
  time.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
  return time;
}

}  // namespace

Status WaitReady(int descriptor, short events, Deadline deadline, const CancelSignal* cancel) {
  pollfd waits[2] = {{descriptor, events, 0},
                     {cancel != nullptr ? cancel->descriptor() : -1, POLLIN, 0}};
  for (;;) {
    if (cancel != nullptr && cancel->cancelled()) {
      return MakeError(ErrorCode::kCancelled, "cancelled");
    }
    const timespec time = PollTime(deadline, cancel);
    const int ready = ::ppoll(waits, 2, &time, nullptr);
    if (ready < 0 && errno != EINTR) {
      return MakeError(ErrorCode::kInternal, std::string("poll: ") + std::strerror(errno));
    }
    if (cancel != nullptr && cancel->cancelled()) continue;
    if (ready > 0 && waits[0].revents != 0) return {};
    if (ready <= 0 && Clock::now() >= deadline) {
      return MakeError(ErrorCode::kDeadlineExceeded, "the deadline passed");
    }
  }
}

Status WaitUntil(Clock::time_point time, const CancelSignal* cancel) {
  Status waited = WaitReady(-1, 0, time, cancel);
  if (!waited && waited.error().code != ErrorCode::kDeadlineExceeded) return waited;
  return {};
}

}  // namespace kvserve
