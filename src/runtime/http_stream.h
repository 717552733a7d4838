// The bytes of one HTTP connection, with limits that httplib lacks.
#pragma once

#include <httplib.h>

#include <array>
#include <cstddef>

#include "base/clock.h"

namespace kvserve {

struct HttpStreamLimits {
  double head_s = 10.0;  // from the first byte of a request to the end of its headers
  double body_s = 60.0;
  std::size_t head_bytes = 64 << 10;
};

// httplib's own stream waits for each read alone and its headers may go on for ever: a client that
// sends a byte now and then would hold its thread, one that goes on would fill the memory.
// For one thread. The socket stays the caller's.
class HttpStream final : public httplib::Stream {
 public:
  HttpStream(socket_t socket, const HttpStreamLimits& limits) : socket_(socket), limits_(limits) {}

  // Whether a request begins within `wait_s`. The limits of its head apply from then on.
  [[nodiscard]] bool BeginHead(double wait_s);
  // The limits of the body replace those of the head.
  void BeginBody();

  [[nodiscard]] bool is_readable() const override;
  // False also when the client has closed its side.
  [[nodiscard]] bool is_writable() const override;
  ssize_t read(char* out, std::size_t size) override;
  ssize_t write(const char* bytes, std::size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  [[nodiscard]] socket_t socket() const override { return socket_; }

 private:
  // The events that the socket has by then; 0: none.
  [[nodiscard]] short Wait(short events, Deadline deadline) const;

  const socket_t socket_;
  const HttpStreamLimits limits_;
  Deadline deadline_;
  std::size_t bytes_left_ = 0;
  std::array<char, 4096> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace kvserve
