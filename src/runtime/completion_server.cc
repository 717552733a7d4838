#include "runtime/completion_server.h"

#include <httplib.h>

#include <nlohmann/json.hpp>

#include "base/try.h"
#include "runtime/client_watch.h"
#include "runtime/completion_format.h"
#include "runtime/completion_request.h"
#include "runtime/completion_stream.h"

namespace kvserve {
namespace {

constexpr std::chrono::milliseconds kPoll{50};
constexpr char kJson[] = "application/json";

void SendError(const Error& error, httplib::Response& response) {
  const HttpError http = FormatError(error);
  response.status = http.status;
  if (http.status == 503) response.set_header("Retry-After", "1");
  response.set_content(http.body, kJson);
}

ClientWatch Watch(const httplib::Request& request) {
  return ClientWatch(request.remote_addr, request.remote_port, request.local_port);
}

void Answer(DecodeNode& node, const CompletionRequest& request, const httplib::Request& http,
            httplib::Response& response) {
  const ClientWatch client = Watch(http);
  std::string text;
  const auto report = node.Generate(
      request.generate, [&] { return client.connected(); },
      [&](std::optional<Token>, std::string_view piece) {
        text += piece;
        return true;
      });
  if (!report) return SendError(report.error(), response);
  const CompletionFormat format(request, node.worker().info().name);
  response.set_content(format.Whole(*report, text), kJson);
}

// Sends events as they come; false ends the response because the client has gone.
bool Pump(CompletionStream& stream, std::string& first, httplib::DataSink& sink) {
  if (!first.empty()) {
    if (!sink.write(first.data(), first.size())) return false;
    first.clear();
  }
  while (!stream.ended()) {
    const auto event = stream.Next(kPoll);
    if (event && !sink.write(event->data(), event->size())) return false;
    if (!event && !sink.is_writable()) return false;
  }
  sink.done();
  return true;
}

void Stream(DecodeNode& node, CompletionRequest request, const httplib::Request& http,
            httplib::Response& response) {
  const ClientWatch client = Watch(http);
  auto stream = std::make_shared<CompletionStream>(node, std::move(request));
  std::optional<std::string> first;
  while (!first && !stream->ended() && client.connected()) first = stream->Next(kPoll);
  if (!first) {
    const auto& error = stream->early_error();
    const Error gone{ErrorCode::kCancelled, "the client has gone"};
    return SendError(stream->ended() && error ? *error : gone, response);
  }
  response.set_header("Cache-Control", "no-cache");
  response.set_chunked_content_provider(
      "text/event-stream",
      [stream, held = std::make_shared<std::string>(std::move(*first))](
          std::size_t, httplib::DataSink& sink) { return Pump(*stream, *held, sink); });
}

void Complete(DecodeNode& node, Endpoint endpoint, const httplib::Request& http,
              const std::string& body, httplib::Response& response) {
  const auto parse = [&]() -> Result<CompletionRequest> {
    KVSERVE_ASSIGN(auto request, ParseCompletionRequest(endpoint, body, node.worker().text()));
    KVSERVE_TRY(node.CheckRequest(request.generate));
    return request;
  };
  auto request = parse();
  if (!request) return SendError(request.error(), response);
  const std::string& served = node.worker().info().name;
  if (!request->model.empty() && request->model != served) {
    response.status = 404;
    response.set_content(
        FormatErrorBody(404, "the model " + request->model + " is not served, " + served + " is"),
        kJson);
    return;
  }
  if (request->stream) return Stream(node, std::move(*request), http, response);
  Answer(node, *request, http, response);
}

std::string ModelList(const ModelInfo& model) {
  const nlohmann::json entry = {{"id", model.name},
                                {"object", "model"},
                                {"owned_by", "kvserve"},
                                {"max_model_len", model.context_tokens},
                                {"fingerprint", model.fingerprint.hex()}};
  return nlohmann::json{{"object", "list"}, {"data", nlohmann::json::array({entry})}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void AddNodeRoutes(HttpListener& http, NodeMetrics& metrics) {
  http.routes().Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("ok\n", "text/plain");
  });
  http.routes().Get("/metrics", [&metrics](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics.Expose(), "text/plain; version=0.0.4");
  });
}

void AddCompletionRoutes(HttpListener& http, DecodeNode& node) {
  const auto add = [&](const char* path, Endpoint endpoint) {
    http.AddPost(path, [&node, endpoint](const httplib::Request& request, const std::string& body,
                                         httplib::Response& response) {
      Complete(node, endpoint, request, body, response);
    });
  };
  add("/v1/completions", Endpoint::kCompletions);
  add("/v1/chat/completions", Endpoint::kChat);
  http.routes().Get("/v1/models", [&node](const httplib::Request&, httplib::Response& response) {
    response.set_content(ModelList(node.worker().info()), kJson);
  });
}

}  // namespace kvserve
