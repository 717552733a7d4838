#include "net/connection_server.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/try.h"

namespace kvserve {
namespace {

constexpr double kAcceptSeconds = 3600;  // Accept is woken by Close; any long time does

}  // namespace

Result<std::unique_ptr<ConnectionServer>> ConnectionServer::Start(const HostPort& address,
                                                                  const AuthToken& token,
                                                                  Options options) {
  std::unique_ptr<ConnectionServer> server(new ConnectionServer(std::move(options)));
  KVSERVE_ASSIGN(server->listener_, Listener::Bind(address, token));
  server->address_ = server->listener_->address();
  server->accept_thread_ = std::thread([raw = server.get()] { raw->AcceptLoop(); });
  return server;
}

void ConnectionServer::Stop(double grace_s) {
  stopping_ = true;
  if (listener_) listener_->Close();
  if (accept_thread_.joinable()) accept_thread_.join();
  listener_.reset();  // new connections are refused from here on, not left waiting
  {
    std::unique_lock lock(mutex_);
    const auto finished = [](const Peer& peer) { return peer.finished; };
    ended_.wait_until(lock, After(grace_s),
                      [&] { return std::all_of(peers_.begin(), peers_.end(), finished); });
    for (Peer& peer : peers_) peer.connection->Cancel();
  }
  for (Peer& peer : peers_) peer.thread.join();
  peers_.clear();
}

std::size_t ConnectionServer::connections() const {
  const std::lock_guard lock(mutex_);
  std::size_t open = 0;
  for (const Peer& peer : peers_) open += peer.finished ? 0 : 1;
  return open;
}

void ConnectionServer::Count(std::string_view outcome) const {
  if (options_.count) options_.count(outcome);
}

void ConnectionServer::AcceptLoop() {
  while (!stopping_) {
    auto connection = listener_->Accept(After(kAcceptSeconds));
    ReapFinished();
    if (connection) {
      Admit(std::move(*connection));
    } else if (connection.error().code == ErrorCode::kCancelled) {
      return;
    } else if (connection.error().code == ErrorCode::kResourceExhausted) {
      Count("no_descriptor");
    }
  }
}

void ConnectionServer::ReapFinished() {
  const std::lock_guard lock(mutex_);
  for (auto peer = peers_.begin(); peer != peers_.end();) {
    if (!peer->finished) {
      ++peer;
      continue;
    }
    peer->thread.join();
    peer = peers_.erase(peer);
  }
}

void ConnectionServer::Admit(std::unique_ptr<Connection> connection) {
  const std::lock_guard lock(mutex_);
  if (peers_.size() >= options_.max_connections) return Count("refused");
  Peer& peer = peers_.emplace_back();
  peer.connection = std::move(connection);
  try {
    peer.thread = std::thread([this, &peer] {
      options_.serve(*peer.connection);
      peer.connection->Cancel();
      const std::lock_guard ending(mutex_);
      peer.finished = true;
      ended_.notify_all();
    });
  } catch (const std::system_error&) {  // the system has no thread left
    peers_.pop_back();
    return Count("refused");
  }
  Count("accepted");
}

}  // namespace kvserve
