// Listening for connections, and making them.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "kvserve/error.h"
#include "net/cancel_signal.h"
#include "net/connection.h"
#include "net/endpoint.h"
#include "net/token.h"

namespace kvserve {

class Listener {
 public:
  virtual ~Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Port 0 is allowed; port() tells which was given. kInvalidArgument for a non-loopback address
  // without a token (names the address and the missing token); kUnavailable when the address cannot
  // be resolved or bound.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> Bind(const HostPort& address,
                                                              const AuthToken& token);

  // The next connection; its handshake is the caller's (in another thread, so that a silent client
  // holds up nobody). kDeadlineExceeded, kCancelled after Close, kResourceExhausted when the
  // process has no descriptor left (returned after a short wait, so that a caller's loop does not
  // spin).
  [[nodiscard]] virtual Result<std::unique_ptr<Connection>> Accept(Deadline deadline) = 0;

  // Thread-safe: pending and later Accepts return kCancelled. The port is free after destruction.
  virtual void Close() = 0;

  [[nodiscard]] virtual std::uint16_t port() const = 0;
  [[nodiscard]] virtual HostPort address() const = 0;  // with the real port

 protected:
  Listener() = default;
};

// Connects. kUnavailable names address and reason; kDeadlineExceeded; kCancelled if `cancel` fires.
// A host name is resolved by the system's resolver, which knows no deadline; numeric addresses do
// not wait.
[[nodiscard]] Result<std::unique_ptr<Connection>> Connect(const HostPort& address,
                                                          Deadline deadline,
                                                          const CancelSignal* cancel = nullptr);

}  // namespace kvserve
