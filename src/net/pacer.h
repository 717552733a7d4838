// Token bucket that limits what connections send, where the kernel's shaper is not available.
#pragma once

#include <cstddef>
#include <mutex>

#include "base/clock.h"

namespace kvserve {

// Several connections that share a Pacer share its rate, as they would share a link. Thread-safe.
class Pacer {
 public:
  static constexpr std::size_t kDefaultBurstBytes = 64 * 1024;

  // `bytes_per_s` above 0; 0 or less means unlimited.
  explicit Pacer(double bytes_per_s, std::size_t burst_bytes = kDefaultBurstBytes);

  // Takes `bytes` from the bucket and returns the time from which they may be sent (at most `now`
  // when the bucket holds them). Calls are served in order.
  [[nodiscard]] Clock::time_point Reserve(std::size_t bytes, Clock::time_point now);

 private:
  const double bytes_per_s_;
  const double burst_bytes_;
  std::mutex mutex_;
  Clock::time_point drained_;  // when the bytes reserved so far would have left at the bare rate
};

}  // namespace kvserve
