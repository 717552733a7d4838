#include "net/peer_pool.h"

#include <algorithm>
#include <utility>

#include "base/try.h"

namespace kvserve {

PeerPool::PeerPool(PeerPoolOptions options, Hello hello)
    : options_(std::move(options)), hello_(std::move(hello)) {}

void PeerPool::Count(std::string_view outcome) const {
  if (options_.count) options_.count(outcome);
}

Result<std::unique_ptr<Connection>> PeerPool::ConnectOnce(Deadline deadline,
                                                          TransferCancel* cancel) {
  const Deadline limit = std::min(deadline, After(options_.connect_s));
  KVSERVE_ASSIGN(auto connection, Connect(options_.address, limit,
                                          cancel != nullptr ? &cancel->signal() : &cancel_));
  std::optional<TransferCancel::Watch> watch;
  if (cancel != nullptr) watch.emplace(*cancel, *connection);
  KVSERVE_TRY(ClientHandshake(*connection, hello_, options_.token, limit));
  return connection;
}

Result<PeerPool::Lease> PeerPool::Acquire(Deadline deadline, bool allow_idle,
                                          TransferCancel* cancel) {
  {
    const std::lock_guard lock(mutex_);
    while (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      if (allow_idle && !connection->PeerClosed()) return Lease{std::move(connection), false};
    }
    if (last_error_ && Clock::now() < next_attempt_) {
      return MakeError(last_error_->code, last_error_->message + " (not tried again yet)");
    }
    // Others fail fast while this attempt runs, unless there has been no failure.
    if (last_error_) next_attempt_ = After(options_.connect_s);
  }
  const auto begun = Clock::now();
  auto connection = ConnectOnce(deadline, cancel);
  const std::lock_guard lock(mutex_);
  if (connection) {
    Count("connected");
    last_error_.reset();
    backoff_s_ = 0.0;
    return Lease{std::move(*connection), true};
  }
  if (cancel != nullptr && cancel->signal().cancelled()) {
    if (last_error_) next_attempt_ = Clock::now();  // the next one finds out
    return MakeError(ErrorCode::kCancelled, "cancelled while connecting");
  }
  Count("failed");
  last_error_ = connection.error();
  if (begun >= last_failure_) {  // else it ran beside one that has failed: the same failure
    backoff_s_ = std::clamp(backoff_s_ * 2, options_.first_backoff_s, options_.max_backoff_s);
    last_failure_ = Clock::now();
    next_attempt_ = After(backoff_s_);
  }
  return tl::unexpected(connection.error());
}

void PeerPool::ForgetFailure() {
  const std::lock_guard lock(mutex_);
  last_error_.reset();
  backoff_s_ = 0.0;
}

void PeerPool::Return(std::unique_ptr<Connection> connection) {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < options_.max_idle) idle_.push_back(std::move(connection));
}

}  // namespace kvserve
