// Connections to one peer: used again, and not made in a hurry.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "net/handshake.h"
#include "net/listener.h"
#include "net/transfer_cancel.h"

namespace kvserve {

struct PeerPoolOptions {
  HostPort address;
  AuthToken token;
  double connect_s = 3.0;         // one attempt, handshake included
  double first_backoff_s = 0.25;  // after a failed attempt; doubles
  double max_backoff_s = 10.0;
  std::size_t max_idle = 8;
  std::function<void(std::string_view outcome)> count;  // "connected", "failed"; may be empty
};

// After a failure, requests within the back-off time fail at once with the last error; the first
// one after it makes one attempt. Attempts that fail side by side count once. Thread-safe.
class PeerPool {
 public:
  PeerPool(PeerPoolOptions options, Hello hello);

  struct Lease {
    std::unique_ptr<Connection> connection;
    bool fresh = false;  // made for this lease, so the peer was alive a moment ago
  };

  // An idle connection whose peer is still there, or a new one. `allow_idle` false: a new one.
  // `cancel` ends an attempt at once (kCancelled); such an attempt is no failure of the peer.
  [[nodiscard]] Result<Lease> Acquire(Deadline deadline, bool allow_idle,
                                      TransferCancel* cancel = nullptr);
  // Takes back a connection on which the last transfer ended in order.
  void Return(std::unique_ptr<Connection> connection);
  // The next Acquire makes an attempt, whatever has failed before.
  void ForgetFailure();
  // Ends all attempts, now and later, but those with a `cancel` of their own.
  void CancelConnects() { cancel_.Cancel(); }

 private:
  [[nodiscard]] Result<std::unique_ptr<Connection>> ConnectOnce(Deadline deadline,
                                                                TransferCancel* cancel);
  void Count(std::string_view outcome) const;

  const PeerPoolOptions options_;
  const Hello hello_;
  CancelSignal cancel_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
  std::optional<Error> last_error_;
  Clock::time_point last_failure_;
  Clock::time_point next_attempt_;
  double backoff_s_ = 0.0;
};

}  // namespace kvserve
