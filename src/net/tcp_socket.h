// The asio socket behind a Connection. Included by .cc files only, so that nobody else sees asio.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <memory>

#include "kvserve/error.h"
#include "net/connection.h"

namespace kvserve {

// The context is never run: calls are non-blocking and wait in poll, where a deadline and a
// cancellation can end them. A listener's connections share its context, which costs descriptors.
struct TcpSocket {
  std::shared_ptr<asio::io_context> context;
  asio::ip::tcp::socket socket;
};

// Takes a connected socket and sets its options.
[[nodiscard]] Result<std::unique_ptr<Connection>> MakeConnection(TcpSocket socket);

}  // namespace kvserve
