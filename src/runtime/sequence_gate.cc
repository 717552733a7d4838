#include "runtime/sequence_gate.h"

#include <algorithm>
#include <chrono>

#include "base/try.h"

namespace kvserve {

// How often a waiting request looks whether its client is still there.
constexpr std::chrono::milliseconds kAliveInterval{50};

Result<SequenceGate::Ticket> SequenceGate::Enter(RequestScope& scope,
                                                 const std::function<bool()>& alive) {
  std::unique_lock lock(mutex_);
  if (free_ > 0 && line_.empty()) {
    --free_;
    return Ticket(this);
  }
  if (line_.size() >= max_waiting_) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "all sequences are in use and " + std::to_string(line_.size()) +
                         " requests are waiting, the limit is " + std::to_string(max_waiting_));
  }
  const std::uint64_t ticket = next_ticket_++;
  line_.push_back(ticket);
  const auto leave_line = [&] { line_.erase(std::find(line_.begin(), line_.end(), ticket)); };
  for (;;) {
    changed_.wait_for(lock, kAliveInterval, [&] { return free_ > 0 && line_.front() == ticket; });
    if (free_ > 0 && line_.front() == ticket) break;
    lock.unlock();
    const Status status = scope.Check(alive);
    lock.lock();
    if (!status) {
      leave_line();
      changed_.notify_all();
      return tl::unexpected(status.error());
    }
  }
  leave_line();
  --free_;
  changed_.notify_all();
  return Ticket(this);
}

void SequenceGate::Leave() {
  const std::lock_guard lock(mutex_);
  ++free_;
  changed_.notify_all();
}

std::size_t SequenceGate::waiting() const {
  const std::lock_guard lock(mutex_);
  return line_.size();
}

Result<OpenedSequence> OpenedSequence::Open(EngineWorker& worker) {
  KVSERVE_ASSIGN(const SequenceId id,
                 worker.Run([](Engine& engine) { return engine.OpenSequence(); }));
  return OpenedSequence(&worker, id);
}

OpenedSequence& OpenedSequence::operator=(OpenedSequence&& other) noexcept {
  if (this != &other) {
    Close();
    worker_ = std::exchange(other.worker_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

void OpenedSequence::Close() {
  if (worker_ == nullptr) return;
  worker_->Run([id = id_](Engine& engine) { engine.CloseSequence(id); });
  worker_ = nullptr;
}

}  // namespace kvserve
