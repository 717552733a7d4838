// kvserve serve prefill: computes the KV of prompts and sends it to decode nodes.
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/try.h"
#include "codec_arguments.h"
#include "runtime/completion_server.h"
#include "runtime/prefill_node.h"
#include "serve_nodes.h"
#include "serve_options.h"
#include "serve_signals.h"

namespace kvserve::tool {
namespace {

struct Arguments {
  EngineArguments engine;
  std::string listen;
  std::string http;
  std::string token_file;
  std::string calibration;
  std::string fallback;
  double pace_mbps = 0.0;
  std::uint32_t max_connections = 64;
};

// A line for the first request of each cause; the metrics count the others.
DriftNotice NoticeOncePerCause() {
  struct Told {
    std::mutex mutex;
    std::set<std::string> causes;
  };
  return [told = std::make_shared<Told>()](const DriftedRequest& request) {
    {
      const std::lock_guard lock(told->mutex);
      if (!told->causes.insert(request.cause).second) return;
    }
    std::fprintf(stderr,
                 "kvserve: %u of %u chunks of a request were unlike the calibration's texts and "
                 "encoded by %s instead of %s; the first by its %s. Further ones are counted in "
                 "kvserve_drift_fallback_chunks_total\n",
                 request.drifted_chunks, request.chunks, request.fallback.c_str(),
                 request.profile.c_str(), request.reason.c_str());
  };
}

Status Run(const Arguments& arguments) {
  PrefillNodeOptions options;
  HttpOptions http_options;
  KVSERVE_ASSIGN(options.listen, ParseAddress("--listen", arguments.listen));
  KVSERVE_ASSIGN(options.token, ReadToken(arguments.token_file));
  KVSERVE_TRY(CheckExposure("--listen", options.listen, options.token));
  if (!arguments.http.empty()) {
    KVSERVE_ASSIGN(http_options.address, ParseAddress("--http", arguments.http));
    KVSERVE_TRY(CheckExposure("--http", http_options.address, options.token));
    if (!IsLoopback(http_options.address)) http_options.token = options.token;
  }
  KVSERVE_ASSIGN(const LlamaOptions engine, CheckEngineArguments(arguments.engine));
  options.chunk_tokens = arguments.engine.chunk_tokens;
  options.sequences = arguments.engine.sequences;
  options.max_connections = arguments.max_connections;
  KVSERVE_ASSIGN(options.calibration, LoadArtefact(arguments.calibration));
  KVSERVE_ASSIGN(options.fallback, LoadFallback(arguments.fallback));
  options.pace_bytes_per_s = arguments.pace_mbps * 1e6 / 8;
  options.drift_notice = NoticeOncePerCause();

  HoldStopSignals();
  KVSERVE_ASSIGN(const auto worker, LoadEngine(engine));
  KVSERVE_ASSIGN(const auto node, PrefillNode::Start(*worker, options));
  std::unique_ptr<HttpListener> http;
  std::string ready = "listen " + node->address().text();
  if (!arguments.http.empty()) {
    KVSERVE_ASSIGN(http, HttpListener::Bind(http_options));
    AddNodeRoutes(*http, node->metrics());
    http->Start();
    ready += " http " + http->address().text();
  }
  std::fprintf(stderr, "kvserve: ready: prefill %s model %s\n", ready.c_str(),
               worker->info().name.c_str());
  WaitForStopSignal();
  std::fprintf(stderr, "kvserve: stopping\n");
  return {};
}

}  // namespace

void AddServePrefill(CLI::App& serve, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      serve.add_subcommand("prefill", "Compute the KV of prompts and send it, encoded as asked");
  AddEngineOptions(*command, arguments->engine);
  command->add_option("--listen", arguments->listen, "HOST:PORT for decode nodes; port 0 chooses")
      ->required();
  command->add_option("--http", arguments->http, "HOST:PORT for /healthz and /metrics");
  command->add_option("--token-file", arguments->token_file,
                      "File with the shared token; required beyond loopback");
  AddCalibrationOption(*command, arguments->calibration);
  AddFallbackOption(*command, arguments->fallback);
  command
      ->add_option("--pace-mbps", arguments->pace_mbps,
                   "Send at most this many Mbit/s, all connections together; 0: no limit")
      ->check(NumberWithin(0.0, 1e6))
      ->capture_default_str();
  command
      ->add_option("--max-connections", arguments->max_connections,
                   "Connections of decode nodes; more are closed at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->footer("Example: kvserve serve prefill --model m.gguf --listen 127.0.0.1:7001");
  command->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return Run(*arguments); }; });
}

}  // namespace kvserve::tool
