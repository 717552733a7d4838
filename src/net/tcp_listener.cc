#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/ip/address.hpp>
#include <asio/ip/v6_only.hpp>
#include <cerrno>
#include <string>
#include <vector>

#include "base/try.h"
#include "net/listener.h"
#include "net/tcp_socket.h"
#include "net/wait.h"

namespace kvserve {
namespace {

using asio::ip::tcp;

constexpr double kDescriptorPauseS = 0.05;

tl::unexpected<Error> Failed(const std::string& what, const HostPort& address,
                             const asio::error_code& error) {
  return MakeError(ErrorCode::kUnavailable, what + " " + address.text() + ": " + error.message());
}

tl::unexpected<Error> NeedsToken(const HostPort& address) {
  return MakeError(ErrorCode::kInvalidArgument,
                   "listening on " + address.text() +
                       " needs a token, since it is not a loopback address: name a token file, or "
                       "listen on 127.0.0.1");
}

Result<std::vector<tcp::endpoint>> Resolve(asio::io_context& context, const HostPort& address) {
  asio::error_code error;
  const auto ip = asio::ip::make_address(address.host, error);
  if (!error) return std::vector<tcp::endpoint>{tcp::endpoint(ip, address.port)};
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(address.host, std::to_string(address.port),
                                      tcp::resolver::numeric_service, error);
  if (error) return Failed("resolving", address, error);
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  return endpoints;
}

class TcpListener final : public Listener {
 public:
  TcpListener(std::shared_ptr<asio::io_context> context, tcp::acceptor acceptor, HostPort address)
      : context_(std::move(context)),
        acceptor_(std::move(acceptor)),
        address_(std::move(address)) {}

  Result<std::unique_ptr<Connection>> Accept(Deadline deadline) override;
  void Close() override { cancel_.Cancel(); }
  std::uint16_t port() const override { return address_.port; }
  HostPort address() const override { return address_; }

 private:
  std::shared_ptr<asio::io_context> context_;
  tcp::acceptor acceptor_;
  HostPort address_;
  CancelSignal cancel_;
};

Result<std::unique_ptr<Connection>> TcpListener::Accept(Deadline deadline) {
  for (;;) {
    KVSERVE_TRY(WaitReady(acceptor_.native_handle(), POLLIN, deadline, &cancel_));
    asio::error_code error;
    tcp::socket socket(*context_);
    acceptor_.accept(socket, error);
    if (!error) {
      auto connection = MakeConnection({context_, std::move(socket)});
      if (connection) return connection;
      continue;  // it was reset while it waited for us
    }
    if (error == asio::error::no_descriptors || error.value() == ENFILE ||
        error == asio::error::no_memory || error == asio::error::no_buffer_space) {
      KVSERVE_TRY(WaitUntil(std::min<Deadline>(deadline, After(kDescriptorPauseS)), &cancel_));
      return MakeError(ErrorCode::kResourceExhausted,
                       "accepting on " + address_.text() + ": " + error.message());
    }
    if (error.value() == EBADF || error.value() == EINVAL || error.value() == ENOTSOCK) {
      return MakeError(ErrorCode::kInternal,
                       "accepting on " + address_.text() + ": " + error.message());
    }
    // Anything else concerns the one connection that was to be accepted.
  }
}

Result<tcp::socket> ConnectTo(asio::io_context& context, const tcp::endpoint& endpoint,
                              const HostPort& address, Deadline deadline,
                              const CancelSignal* cancel) {
  asio::error_code error;
  tcp::socket socket(context);
  socket.open(endpoint.protocol(), error);
  if (!error) socket.non_blocking(true, error);
  if (error) return Failed("connecting to", address, error);
  // asio's own connect waits without a deadline even on a non-blocking socket.
  if (::connect(socket.native_handle(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) !=
      0) {
    if (errno != EINPROGRESS && errno != EINTR) {
      return Failed("connecting to", address, asio::error_code(errno, asio::system_category()));
    }
    if (auto status = WaitReady(socket.native_handle(), POLLOUT, deadline, cancel); !status) {
      return MakeError(status.error().code,
                       "connecting to " + address.text() + ": " + status.error().message);
    }
    int result = 0;
    socklen_t size = sizeof(result);
    if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_ERROR, &result, &size) != 0)
      result = errno;
    if (result != 0) {
      return Failed("connecting to", address, asio::error_code(result, asio::system_category()));
    }
  }
  // A free local port that the system happens to choose as source connects to itself.
  asio::error_code ignored;
  if (socket.local_endpoint(ignored) == socket.remote_endpoint(error)) {
    return Failed("connecting to", address, asio::error::connection_refused);
  }
  return socket;
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::Bind(const HostPort& address, const AuthToken& token) {
  if (token.empty() && !IsLoopback(address)) return NeedsToken(address);
  auto context = std::make_shared<asio::io_context>(1);
  KVSERVE_ASSIGN(const auto endpoints, Resolve(*context, address));
  if (endpoints.empty()) {
    return MakeError(ErrorCode::kUnavailable, "binding " + address.text() + ": no address found");
  }
  const tcp::endpoint& endpoint = endpoints.front();
  if (token.empty() && !IsLoopback({endpoint.address().to_string(), 0})) {
    return NeedsToken(address);  // a "localhost" that is not
  }
  asio::error_code error;
  tcp::acceptor acceptor(*context);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) acceptor.non_blocking(true, error);
  tcp::endpoint local;
  if (!error) local = acceptor.local_endpoint(error);
  if (error) return Failed("binding", address, error);
  return std::make_unique<TcpListener>(std::move(context), std::move(acceptor),
                                       HostPort{address.host, local.port()});
}

Result<std::unique_ptr<Connection>> Connect(const HostPort& address, Deadline deadline,
                                            const CancelSignal* cancel) {
  auto context = std::make_shared<asio::io_context>(1);
  KVSERVE_ASSIGN(const auto endpoints, Resolve(*context, address));
  Error last{ErrorCode::kUnavailable, "connecting to " + address.text() + ": no address found"};
  for (const auto& endpoint : endpoints) {
    auto socket = ConnectTo(*context, endpoint, address, deadline, cancel);
    if (socket) return MakeConnection({context, std::move(*socket)});
    last = std::move(socket).error();
    if (last.code != ErrorCode::kUnavailable) break;
  }
  return tl::unexpected<Error>(std::move(last));
}

}  // namespace kvserve
