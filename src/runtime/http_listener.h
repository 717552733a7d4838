// An HTTP server with limits: bounded threads, queue and bodies, a bearer token, JSON errors.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "kvserve/error.h"
#include "net/endpoint.h"
#include "net/token.h"

namespace httplib {
class Server;
}

namespace kvserve {

struct HttpOptions {
  HostPort address;
  AuthToken token;  // required when the address is not loopback; /healthz never asks for it
  std::size_t threads = 32;               // connections served at the same time
  std::size_t queue = 64;                 // connections waiting; beyond them: 503 with Retry-After
  std::size_t max_body_bytes = 4U << 20;  // 413 above
};

class HttpListener {
 public:
  // Binds; kInvalidArgument for a non-loopback address without a token, kUnavailable when the
  // address cannot be bound.
  [[nodiscard]] static Result<std::unique_ptr<HttpListener>> Bind(const HttpOptions& options);
  // Stops accepting and waits for the handlers that run.
  ~HttpListener();
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  // Routes are added before Start.
  [[nodiscard]] httplib::Server& routes() { return *server_; }
  void Start();
  [[nodiscard]] HostPort address() const { return address_; }

 private:
  HttpListener();

  std::unique_ptr<httplib::Server> server_;
  HostPort address_;
  std::thread thread_;
};

}  // namespace kvserve
