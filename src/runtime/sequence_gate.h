// Admission: as many requests as the engine has sequences, a bounded line behind them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "kvserve/error.h"
#include "runtime/engine_worker.h"
#include "runtime/request_scope.h"

namespace kvserve {

// Thread-safe, first come first served. Outlives its tickets.
class SequenceGate {
 public:
  class Ticket {
   public:
    explicit Ticket(SequenceGate* gate) : gate_(gate) {}
    Ticket(Ticket&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() {
      if (gate_ != nullptr) gate_->Leave();
    }

   private:
    SequenceGate* gate_;
  };

  SequenceGate(std::uint32_t sequences, std::uint32_t max_waiting)
      : free_(sequences), max_waiting_(max_waiting) {}

  // Waits for a turn. kResourceExhausted at once when the line is full; the errors of
  // scope.Check(alive), which is asked while waiting.
  [[nodiscard]] Result<Ticket> Enter(RequestScope& scope, const std::function<bool()>& alive);
  [[nodiscard]] std::size_t waiting() const;

 private:
  void Leave();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t free_;
  const std::uint32_t max_waiting_;
  std::uint64_t next_ticket_ = 0;
  std::deque<std::uint64_t> line_;
};

// An open sequence of the engine, closed on the engine thread when it goes out of scope.
class OpenedSequence {
 public:
  [[nodiscard]] static Result<OpenedSequence> Open(EngineWorker& worker);
  OpenedSequence(OpenedSequence&& other) noexcept
      : worker_(std::exchange(other.worker_, nullptr)), id_(other.id_) {}
  OpenedSequence& operator=(OpenedSequence&& other) noexcept;
  ~OpenedSequence() { Close(); }

  void Close();
  [[nodiscard]] SequenceId id() const { return id_; }

 private:
  OpenedSequence(EngineWorker* worker, SequenceId id) : worker_(worker), id_(id) {}

  EngineWorker* worker_;
  SequenceId id_;
};

}  // namespace kvserve
