// An HTTP server with limits: bounded threads, queue and bodies, a bearer token, JSON errors.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "kvserve/error.h"
#include "net/endpoint.h"
#include "net/token.h"

namespace httplib {
struct Request;
struct Response;
class Server;
}  // namespace httplib

namespace kvserve {

struct HttpOptions {
  HostPort address;
  AuthToken token;  // required when the address is not loopback; /healthz never asks for it
  std::size_t threads = 32;               // connections served at the same time
  std::size_t queue = 64;                 // connections waiting; beyond them: 503 with Retry-After
  std::size_t max_body_bytes = 4U << 20;  // 413 above
  double head_s = 10.0;                   // for a request's line and headers, from its first byte
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

  // Routes are added before Start; those that take a body by AddPost.
  [[nodiscard]] httplib::Server& routes() { return *server_; }
  // Reads the body of a POST, in whatever form it comes, and gives it to `handler`; 413 if it is
  // longer than max_body_bytes.
  using BodyHandler = std::function<void(const httplib::Request& request, const std::string& body,
                                         httplib::Response& response)>;
  void AddPost(const std::string& path, BodyHandler handler);
  void Start();
  [[nodiscard]] HostPort address() const { return address_; }

 private:
  HttpListener();

  std::unique_ptr<httplib::Server> server_;
  HostPort address_;
  std::size_t max_body_bytes_ = 0;
  std::thread thread_;
};

}  // namespace kvserve
