// Values that others work out from an object when they first need them.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace kvserve {

// Any threads at once. A slot always has one type, the callers' choice.
class KeptValues {
 public:
  explicit KeptValues(std::size_t slots) : slots_(std::make_unique<Slot[]>(slots)) {}

  // What `make` gave the first time; `slot` is below the number given. Exceptions of `make` pass
  // through, and the slot stays empty.
  template <typename T, typename Make>
  [[nodiscard]] const T* Get(std::size_t slot, const Make& make) const {
    Slot& kept = slots_[slot];
    if (const void* ready = kept.ready.load(std::memory_order_acquire)) {
      return static_cast<const T*>(ready);
    }
    const std::lock_guard lock(kept.making);
    if (kept.value == nullptr) {
      auto made = std::make_shared<const T>(make());
      kept.ready.store(made.get(), std::memory_order_release);
      kept.value = std::move(made);
    }
    return static_cast<const T*>(kept.value.get());
  }

 private:
  struct Slot {
    std::atomic<const void*> ready{nullptr};
    std::mutex making;
    std::shared_ptr<const void> value;
  };
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace kvserve
