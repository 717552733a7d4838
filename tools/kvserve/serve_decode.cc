// kvserve serve decode: answers completions, with prompts prefilled by another node or here.
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "base/try.h"
#include "codec_arguments.h"
#include "kvserve/codec.h"
#include "runtime/completion_server.h"
#include "runtime/decode_node.h"
#include "serve_nodes.h"
#include "serve_options.h"
#include "serve_signals.h"
#include "stages/profile_facts.h"

namespace kvserve::tool {
namespace {

constexpr char kDefaultProfile[] = "lossless";
constexpr double kPeerSeconds = 15.0;
constexpr std::chrono::milliseconds kPeerPause{200};

struct Arguments {
  EngineArguments engine;
  std::string prefill;
  std::string http;
  std::string profile;
  std::string token_file;
  std::string calibration;
  double deadline_s = 300.0;
  double stall_s = 30.0;
  std::uint32_t max_waiting = 16;
};

Result<DecodeNodeOptions> CheckNode(const Arguments& arguments) {
  DecodeNodeOptions options;
  options.profile = arguments.profile.empty() ? kDefaultProfile : arguments.profile;
  options.chunk_tokens = arguments.engine.chunk_tokens;
  options.sequences = arguments.engine.sequences;
  options.max_waiting = arguments.max_waiting;
  options.deadline_s = arguments.deadline_s;
  options.stall_s = arguments.stall_s;
  KVSERVE_ASSIGN(const Profile profile, ParseProfile(options.profile));
  KVSERVE_ASSIGN(options.token, ReadToken(arguments.token_file));
  KVSERVE_ASSIGN(options.calibration, LoadArtefact(arguments.calibration));
  KVSERVE_TRY(FrameEncoder::Create(profile, {.calibration = options.calibration}));
  if (arguments.prefill.empty()) {
    if (arguments.profile.empty()) return options;
    return MakeError(ErrorCode::kInvalidArgument,
                     "--profile says how KV is transferred: it needs --prefill");
  }
  KVSERVE_ASSIGN(options.prefill, ParseAddress("--prefill", arguments.prefill));
  if (options.prefill->port == 0) {
    return MakeError(ErrorCode::kInvalidArgument, "--prefill needs a port other than 0");
  }
  return options;
}

Result<HttpOptions> CheckHttp(const Arguments& arguments, const AuthToken& token) {
  HttpOptions options;
  KVSERVE_ASSIGN(options.address, ParseAddress("--http", arguments.http));
  KVSERVE_TRY(CheckExposure("--http", options.address, token));
  if (!IsLoopback(options.address)) {
    options.token = token;
  } else if (arguments.prefill.empty() && !token.empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--token-file is used with --prefill or an --http address beyond loopback");
  }
  // Every request that runs or waits holds one; the rest serve health, metrics and refusals.
  options.threads = arguments.engine.sequences + arguments.max_waiting + 16;
  return options;
}

// A pair is often started together: gives the prefill node time to load before this one says that
// it is ready. False: a stop signal came.
bool AwaitPeer(DecodeNode& node) {
  const Deadline limit = After(kPeerSeconds);
  for (;;) {
    const Status reached = node.ReachPeer();
    if (reached) return true;
    const bool may_come = reached.error().code == ErrorCode::kUnavailable;
    if (!may_come || Clock::now() > limit) {
      std::fprintf(stderr, "kvserve: warning: %s; until that changes prompts are computed here\n",
                   reached.error().message.c_str());
      return true;
    }
    if (StopSignalWithin(kPeerPause)) return false;
  }
}

Status Run(const Arguments& arguments) {
  KVSERVE_ASSIGN(const DecodeNodeOptions options, CheckNode(arguments));
  KVSERVE_ASSIGN(const HttpOptions http_options, CheckHttp(arguments, options.token));
  KVSERVE_ASSIGN(const LlamaOptions engine, CheckEngineArguments(arguments.engine));

  HoldStopSignals();
  KVSERVE_ASSIGN(const auto worker, LoadEngine(engine));
  KVSERVE_ASSIGN(const auto node, DecodeNode::Create(*worker, options));
  KVSERVE_ASSIGN(auto http, HttpListener::Bind(http_options));
  AddNodeRoutes(*http, node->metrics());
  AddCompletionRoutes(*http, *node);
  if (!AwaitPeer(*node)) return {};
  http->Start();
  // The profile's quality class too: that KV is lossy must not be a surprise.
  const std::string profile =
      " profile " + options.profile + " (" + std::string(QualityClassOf(options.profile)) + ")";
  std::fprintf(stderr, "kvserve: ready: decode http %s prefill %s model %s%s\n",
               http->address().text().c_str(),
               options.prefill ? options.prefill->text().c_str() : "here",
               worker->info().name.c_str(), options.prefill ? profile.c_str() : "");
  WaitForStopSignal();
  std::fprintf(stderr, "kvserve: stopping\n");
  node->Stop();
  http.reset();
  return {};
}

}  // namespace

void AddServeDecode(CLI::App& serve, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = serve.add_subcommand("decode", "Answer completions over HTTP");
  AddEngineOptions(*command, arguments->engine);
  command->add_option("--prefill", arguments->prefill,
                      "HOST:PORT of the prefill node; without it prompts are computed here");
  command->add_option("--http", arguments->http, "HOST:PORT to serve on; port 0 chooses")
      ->required();
  command->add_option("--profile", arguments->profile,
                      "How KV is encoded unless a request says otherwise (default: lossless)");
  AddCalibrationOption(*command, arguments->calibration);
  command->add_option("--token-file", arguments->token_file,
                      "File with the shared token: for the prefill node, and as bearer token of an "
                      "--http address beyond loopback");
  command->add_option("--deadline-s", arguments->deadline_s, "Seconds a request may take")
      ->check(NumberWithin(0.1, 86400.0))
      ->capture_default_str();
  command
      ->add_option("--stall-s", arguments->stall_s,
                   "A transfer without a byte for so many seconds has failed")
      ->check(NumberWithin(0.1, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--max-waiting", arguments->max_waiting,
                   "Requests waiting for a sequence; more get status 503")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->footer(
      "Paths: /v1/completions, /v1/chat/completions, /v1/models, /healthz, /metrics.\n"
      "A request streams with \"stream\": true and pins a profile with\n"
      "\"kvserve\": {\"profile\": \"none\"}.\n"
      "Example: kvserve serve decode --model m.gguf --prefill 127.0.0.1:7001 "
      "--http 127.0.0.1:8001 --profile lossless");
  command->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return Run(*arguments); }; });
}

}  // namespace kvserve::tool
