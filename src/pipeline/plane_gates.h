// Lets the coding of a piece wait until the planes that it needs have been counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <latch>
#include <memory>
#include <span>

#include "base/arena.h"
#include "pipeline/stage.h"

namespace kvserve {

// In the arena of a frame. One thread ends every plane, any thread waits.
class PlaneGates {
 public:
  PlaneGates() = default;
  PlaneGates(std::size_t planes, Arena& arena) : gates_(arena.Take<Gate>(planes)) {
    std::uninitialized_default_construct(gates_.begin(), gates_.end());
  }

  void End(std::size_t plane, bool counted) {
    if (!counted) gates_[plane].failed.store(true, std::memory_order_relaxed);
    gates_[plane].open.count_down();
  }
  // Whether planes [0, end) have all been counted.
  [[nodiscard]] bool Wait(std::size_t end) const {
    bool counted = true;
    for (const Gate& gate : gates_.first(end)) {
      gate.open.wait();
      counted &= !gate.failed.load(std::memory_order_relaxed);
    }
    return counted;
  }

 private:
  struct Gate {
    std::latch open{1};
    std::atomic<bool> failed = false;
  };
  std::span<Gate> gates_;
};

// Ends a plane at the end of a scope, by an exception perhaps.
class PlaneCounting {
 public:
  PlaneCounting(PlaneGates& gates, std::size_t plane) : gates_(gates), plane_(plane) {}
  ~PlaneCounting() { gates_.End(plane_, counted_); }
  PlaneCounting(const PlaneCounting&) = delete;
  PlaneCounting& operator=(const PlaneCounting&) = delete;
  void Succeeded() { counted_ = true; }

 private:
  PlaneGates& gates_;
  std::size_t plane_;
  bool counted_ = false;
};

}  // namespace kvserve
