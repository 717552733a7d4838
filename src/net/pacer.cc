#include "net/pacer.h"

#include <algorithm>
#include <chrono>

namespace kvserve {
namespace {

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Pacer::Pacer(double bytes_per_s, std::size_t burst_bytes)
    : bytes_per_s_(bytes_per_s), burst_bytes_(static_cast<double>(burst_bytes)) {}

// The bucket as one time (the "virtual scheduling" form of a token bucket): it is full when
// drained_ <= now, and bytes may go once what is reserved exceeds now by no more than the burst.
Clock::time_point Pacer::Reserve(std::size_t bytes, Clock::time_point now) {
  if (!(bytes_per_s_ > 0)) return now;
  const std::lock_guard lock(mutex_);
  drained_ = std::max(drained_, now) + Seconds(static_cast<double>(bytes) / bytes_per_s_);
  return drained_ - Seconds(burst_bytes_ / bytes_per_s_);
}

}  // namespace kvserve
