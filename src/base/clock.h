// Monotonic time, deadlines and a scope timer.
#pragma once

#include <chrono>

namespace kvserve {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

[[nodiscard]] inline Deadline After(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

[[nodiscard]] inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Adds the life of the scope to `total_s`.
class ScopedTimer {
 public:
  explicit ScopedTimer(double& total_s) : total_s_(total_s) {}
  ~ScopedTimer() { total_s_ += SecondsSince(start_); }
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  double& total_s_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace kvserve
