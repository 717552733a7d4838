// A sticky flag that also wakes threads blocked in poll: cancels connects, accepts and transfers.
#pragma once

#include <atomic>

namespace kvserve {

// Cancel() may be called from any thread, any number of times, also from a signal handler.
class CancelSignal {
 public:
  CancelSignal();
  ~CancelSignal();
  CancelSignal(const CancelSignal&) = delete;
  CancelSignal& operator=(const CancelSignal&) = delete;

  void Cancel();
  [[nodiscard]] bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // Readable for ever once cancelled; -1 if the system had no descriptor left (cancellation is then
  // seen at the next wake-up instead of at once).
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  std::atomic<bool> cancelled_{false};
  int descriptor_ = -1;
};

}  // namespace kvserve
