// Connections of a decode node to its prefill node: used again, and not made in a hurry.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "net/handshake.h"
#include "net/listener.h"
#include "runtime/metrics.h"

namespace kvserve {

struct PeerPoolOptions {
  HostPort address;
  AuthToken token;
  double connect_s = 3.0;         // one attempt, handshake included
  double first_backoff_s = 0.25;  // after a failed attempt; doubles
  double max_backoff_s = 10.0;
  std::size_t max_idle = 8;
};

// After a failure, requests within the back-off time fail at once with the last error; the first
// one after it makes one attempt. Attempts that fail side by side count once. Thread-safe.
class PeerPool {
 public:
  PeerPool(const PeerPoolOptions& options, Hello hello, NodeMetrics& metrics);

  struct Lease {
    std::unique_ptr<Connection> connection;
    bool fresh = false;  // made for this lease, so the peer was alive a moment ago
  };

  // An idle connection whose peer is still there, or a new one. `allow_idle` false: a new one.
  [[nodiscard]] Result<Lease> Acquire(Deadline deadline, bool allow_idle);
  // Takes back a connection on which the last transfer ended in order.
  void Return(std::unique_ptr<Connection> connection);
  // The next Acquire makes an attempt, whatever has failed before.
  void ForgetFailure();
  void CancelConnects() { cancel_.Cancel(); }

 private:
  [[nodiscard]] Result<std::unique_ptr<Connection>> ConnectOnce(Deadline deadline);

  const PeerPoolOptions options_;
  const Hello hello_;
  NodeMetrics& metrics_;
  CancelSignal cancel_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
  std::optional<Error> last_error_;
  Clock::time_point last_failure_;
  Clock::time_point next_attempt_;
  double backoff_s_ = 0.0;
};

}  // namespace kvserve
