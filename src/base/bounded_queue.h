// A queue between two threads that holds back the writer when it is full.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace kvserve {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  // Waits for room. False (and the item is dropped) once the queue is closed.
  [[nodiscard]] bool Push(T item) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || items_.size() < capacity_; });
    if (closed_) return false;
    items_.push_back(std::move(item));
    changed_.notify_all();
    return true;
  }
  // False at once when there is no room or the queue is closed.
  [[nodiscard]] bool TryPush(T item) {
    const std::lock_guard lock(mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    changed_.notify_all();
    return true;
  }
  // Waits for an item. Empty once the queue is closed and drained.
  [[nodiscard]] std::optional<T> Pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return TakeLocked();
  }
  // Empty at once when there is nothing.
  [[nodiscard]] std::optional<T> TryPop() {
    const std::lock_guard lock(mutex_);
    return TakeLocked();
  }
  // As Pop, but gives up after `wait`: empty and `drained()` still false.
  [[nodiscard]] std::optional<T> PopFor(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, wait, [&] { return closed_ || !items_.empty(); });
    return TakeLocked();
  }
  // No more pushes; what is inside can still be popped.
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] bool drained() const {
    const std::lock_guard lock(mutex_);
    return closed_ && items_.empty();
  }

 private:
  [[nodiscard]] std::optional<T> TakeLocked() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    changed_.notify_all();
    return item;
  }

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace kvserve
