// Time per stage of a chain, added up by many threads at once.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/workers.h"
#include "kvserve/codec.h"
#include "pipeline/chain.h"

namespace kvserve {

// Index of a stage within its clock.
struct ClockSlot {
  static constexpr std::size_t kConvert = 0;
  static constexpr std::size_t kQuantizer = 1;
  static constexpr std::size_t kCodec = 2;
  static constexpr std::size_t kFirstTransform = 3;  // then the selectors
};

class StageClock {
 public:
  void Start(bool running);
  [[nodiscard]] bool running() const { return running_; }
  void Add(std::size_t slot, std::int64_t nanoseconds) {
    nanoseconds_[slot < kSlots ? slot : kSlots - 1].fetch_add(nanoseconds,
                                                              std::memory_order_relaxed);
  }
  // Adds what stages have taken to `seconds`, by their names; conversions as "convert".
  void Report(const Chain& chain, StageSeconds& seconds) const;

 private:
  static constexpr std::size_t kSlots = 40;  // a frame has at most 32 stages
  bool running_ = false;
  std::array<std::atomic<std::int64_t>, kSlots> nanoseconds_{};
};

// Adds the life of the scope; nothing while the clock stands.
class StageTimer {
 public:
  StageTimer(StageClock& clock, std::size_t slot) : clock_(clock), slot_(slot) {
    if (clock_.running()) start_ = Clock::now();
  }
  ~StageTimer() {
    if (!clock_.running()) return;
    const auto taken = std::chrono::nanoseconds(Clock::now() - start_).count();
    clock_.Add(slot_, taken);
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  StageClock& clock_;
  std::size_t slot_;
  Clock::time_point start_;
};

// The same around a stage that runs loops on workers itself: what the other threads did counts too.
class SharedStageTimer {
 public:
  SharedStageTimer(StageClock& clock, std::size_t slot, const Workers& workers)
      : timer_(clock, slot),
        clock_(clock),
        slot_(slot),
        workers_(workers),
        before_(workers.helped_nanoseconds()) {}
  ~SharedStageTimer() {
    if (clock_.running()) clock_.Add(slot_, workers_.helped_nanoseconds() - before_);
  }
  SharedStageTimer(const SharedStageTimer&) = delete;
  SharedStageTimer& operator=(const SharedStageTimer&) = delete;

 private:
  StageTimer timer_;
  StageClock& clock_;
  std::size_t slot_;
  const Workers& workers_;
  std::int64_t before_;
};

// Adds to the entry of this name; takes memory only for one that is new.
void AddSeconds(std::string_view name, double value, StageSeconds& seconds);

}  // namespace kvserve
