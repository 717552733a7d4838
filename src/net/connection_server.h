// Accepts connections and serves each in a thread of its own, up to a limit.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "net/listener.h"

namespace kvserve {

class ConnectionServer {
 public:
  struct Options {
    std::size_t max_connections = 64;  // more are closed at once
    // Runs until the connection is done with; also called from several threads at once.
    std::function<void(Connection&)> serve;
    std::function<void(std::string_view outcome)> count;  // "accepted", "refused", "no_descriptor"
  };

  // Errors are the listener's.
  [[nodiscard]] static Result<std::unique_ptr<ConnectionServer>> Start(const HostPort& address,
                                                                       const AuthToken& token,
                                                                       Options options);
  ~ConnectionServer() { Stop(0.0); }
  ConnectionServer(const ConnectionServer&) = delete;
  ConnectionServer& operator=(const ConnectionServer&) = delete;

  // Accepts no more and waits up to `grace_s` for connections to end; what is left is cancelled.
  void Stop(double grace_s);

  [[nodiscard]] HostPort address() const { return address_; }
  [[nodiscard]] std::size_t connections() const;

 private:
  struct Peer {
    std::unique_ptr<Connection> connection;
    std::thread thread;
    bool finished = false;  // under the mutex
  };

  explicit ConnectionServer(Options options) : options_(std::move(options)) {}
  void AcceptLoop();
  void Admit(std::unique_ptr<Connection> connection);
  void ReapFinished();
  void Count(std::string_view outcome) const;

  const Options options_;
  HostPort address_;
  std::unique_ptr<Listener> listener_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::list<Peer> peers_;
  std::thread accept_thread_;
};

}  // namespace kvserve
