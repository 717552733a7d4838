#include "runtime/http_listener.h"

#include <httplib.h>

#include <cerrno>
#include <cstring>

#include "runtime/completion_format.h"
#include "runtime/http_stream.h"
#include "runtime/http_workers.h"

namespace kvserve {
namespace {

constexpr double kKeepAliveSeconds = 5.0;
constexpr int kBacklog = 256;

using Handled = httplib::Server::HandlerResponse;

// httplib listens with a backlog of 5: beyond it a client's connect is repeated after a second. And
// it knows no limits for a request's head.
class WideServer final : public httplib::Server {
 public:
  void WidenBacklog() { ::listen(svr_sock_, kBacklog); }
  void SetLimits(const HttpStreamLimits& limits) { limits_ = limits; }

 private:
  bool process_and_close_socket(socket_t socket) override {
    HttpStream stream(socket, limits_);
    bool good = true;
    bool closed = false;
    for (std::size_t left = keep_alive_max_count_; left > 0 && good && !closed; --left) {
      if (svr_sock_ == INVALID_SOCKET || !stream.BeginHead(kKeepAliveSeconds)) break;
      good = process_request(stream, left == 1, closed, [&](httplib::Request& request) {
        request.ranges.clear();  // a thousand ranges of one answer would be a thousand answers
        stream.BeginBody();
      });
    }
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return good;
  }

  HttpStreamLimits limits_;
};

Handled Refuse(httplib::Response& response, int status, const char* message) {
  response.status = status;
  response.set_content(FormatErrorBody(status, message), "application/json");
  response.set_header("Connection", "close");  // the body has not been read
  return Handled::Handled;
}

bool IsAuthorized(const AuthToken& token, const httplib::Request& request) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string header = request.get_header_value("Authorization");
  return header.starts_with(kScheme) && token.Is(std::string_view(header).substr(kScheme.size()));
}

// Runs before the body is read.
Handled BeforeRouting(const AuthToken& token, const httplib::Request& request,
                      httplib::Response& response) {
  if (HttpWorkers::refusing()) {
    response.set_header("Retry-After", "1");
    return Refuse(response, 503, "too many connections");
  }
  if (!token.empty() && request.path != "/healthz" && !IsAuthorized(token, request)) {
    response.set_header("WWW-Authenticate", "Bearer");
    return Refuse(response, 401, "a valid bearer token is required");
  }
  return Handled::Unhandled;
}

// Gives httplib's own refusals (no such route, body too large, broken request) our form.
void AfterError(const httplib::Request& request, httplib::Response& response) {
  if (!response.body.empty()) return;
  std::string message = "the request could not be handled";
  if (response.status == 404) message = "there is no " + request.method + " " + request.path;
  if (response.status == 413) message = "the body is too large";
  response.set_content(FormatErrorBody(response.status, message), "application/json");
}

// httplib bounds a body by its stated length only, not one in chunks or what a compressed one
// unpacks to; so every body is read here. What is beyond `limit` is dropped as it comes: a client
// reads the answer after it has sent everything. False: the response's status says why.
bool ReadBody(const httplib::Request& request, const httplib::ContentReader& read,
              std::size_t limit, std::string& body, httplib::Response& response) {
  if (request.is_multipart_form_data()) {
    Refuse(response, 400, "the body is a form with parts");
    return false;
  }
  std::size_t received = 0;
  const bool whole = read([&](const char* data, std::size_t bytes) {
    received += bytes;
    if (received <= limit) body.append(data, bytes);
    return true;
  });
  if (received > limit) response.status = 413;
  return whole && received <= limit;
}

// For the methods that have a body and paths that have no route.
void AddUnknownRoutes(httplib::Server& server) {
  const auto unknown = [](const httplib::Request& request, httplib::Response& response,
                          const httplib::ContentReader& read) {
    std::string dropped;
    ReadBody(request, read, 0, dropped, response);
    if (response.body.empty()) response.status = 404;
  };
  constexpr char kAny[] = ".*";
  server.Post(kAny, unknown).Put(kAny, unknown).Patch(kAny, unknown).Delete(kAny, unknown);
}

}  // namespace

HttpListener::HttpListener() : server_(std::make_unique<WideServer>()) {}

Result<std::unique_ptr<HttpListener>> HttpListener::Bind(const HttpOptions& options) {
  if (!IsLoopback(options.address) && options.token.empty()) {
    return MakeError(ErrorCode::kInvalidArgument, "the HTTP address " + options.address.text() +
                                                      " is not loopback: --token-file is required");
  }
  std::unique_ptr<HttpListener> listener(new HttpListener);
  httplib::Server& server = *listener->server_;
  server.new_task_queue = [threads = options.threads, queue = options.queue] {
    return new HttpWorkers(threads, queue);  // httplib deletes it
  };
  server.set_payload_max_length(options.max_body_bytes);
  server.set_tcp_nodelay(true);
  server.set_pre_routing_handler(
      [token = options.token](const httplib::Request& request, httplib::Response& response) {
        return BeforeRouting(token, request, response);
      });
  server.set_error_handler(httplib::Server::Handler(AfterError));
  server.set_exception_handler(
      [](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
        Refuse(response, 500, "internal error");
      });
  // httplib's default is SO_REUSEPORT, with which two servers could share a port unnoticed.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  int port = options.address.port;
  errno = 0;  // httplib does not say why it failed
  const bool bound = port == 0 ? (port = server.bind_to_any_port(options.address.host)) > 0
                               : server.bind_to_port(options.address.host, port);
  if (!bound) {
    return MakeError(ErrorCode::kUnavailable,
                     "cannot listen for HTTP on " + options.address.text() + ": " +
                         (errno != 0 ? std::strerror(errno) : "no such address"));
  }
  static_cast<WideServer&>(server).SetLimits({.head_s = options.head_s});
  static_cast<WideServer&>(server).WidenBacklog();
  listener->address_ = {options.address.host, static_cast<std::uint16_t>(port)};
  listener->max_body_bytes_ = options.max_body_bytes;
  return listener;
}

void HttpListener::AddPost(const std::string& path, BodyHandler handler) {
  server_->Post(path, [limit = max_body_bytes_, handler = std::move(handler)](
                          const httplib::Request& request, httplib::Response& response,
                          const httplib::ContentReader& read) {
    std::string body;
    if (ReadBody(request, read, limit, body, response)) handler(request, body, response);
  });
}

void HttpListener::Start() {
  AddUnknownRoutes(*server_);
  thread_ = std::thread([this] { server_->listen_after_bind(); });
  // stop() is lost on a server that does not run yet.
  while (!server_->is_running()) std::this_thread::yield();
}

HttpListener::~HttpListener() {
  if (!thread_.joinable()) return;
  server_->stop();
  thread_.join();
}

}  // namespace kvserve
