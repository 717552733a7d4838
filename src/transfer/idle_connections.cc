#include "transfer/idle_connections.h"

namespace kvserve {

Status IdleConnections::Receive(Connection& connection, Deadline deadline, std::size_t max_payload,
                                Message& message) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return MakeError(ErrorCode::kCancelled, "the sender is stopping");
    waiting_.insert(&connection);
  }
  Status received = connection.Receive(deadline, max_payload, message);
  const std::lock_guard lock(mutex_);
  waiting_.erase(&connection);
  return received;
}

void IdleConnections::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  for (Connection* const connection : waiting_) connection->Cancel();
}

}  // namespace kvserve
