// A piece of symbols that one thread reads and others wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

namespace kvserve {

// Lives in the arena of a frame. One thread reads the piece into `symbols` and ends with Set; those
// that need it call Wait first.
class PieceAhead {
 public:
  std::span<std::uint8_t> symbols;

  // Lets the others go on; once.
  void Set(bool read) {
    state_.store(read ? kRead : kFailed, std::memory_order_release);
    state_.notify_all();
  }
  // Whether the symbols are there; false: reading has failed.
  [[nodiscard]] bool Wait() const {
    state_.wait(kPending, std::memory_order_acquire);
    return state_.load(std::memory_order_acquire) == kRead;
  }

 private:
  enum State : std::uint32_t { kPending, kRead, kFailed };
  std::atomic<std::uint32_t> state_ = kPending;
};

// Sets a piece to failed at the end of a scope that has not read it, by an exception perhaps.
class PieceReading {
 public:
  explicit PieceReading(PieceAhead& piece) : piece_(piece) {}
  ~PieceReading() { piece_.Set(read_); }
  PieceReading(const PieceReading&) = delete;
  PieceReading& operator=(const PieceReading&) = delete;
  void Succeeded() { read_ = true; }

 private:
  PieceAhead& piece_;
  bool read_ = false;
};

}  // namespace kvserve
