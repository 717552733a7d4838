#include "serve_options.h"

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/clock.h"
#include "base/try.h"
#include "engine/llama/process.h"

namespace kvserve::tool {

CLI::Validator NumberWithin(double low, double high) {
  CLI::Validator range = CLI::Range(low, high);
  const auto check = [range](const std::string& text) {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && std::isnan(value)) return text + " is no number";
    return range(text);
  };
  return CLI::Validator(check, range.get_description());
}

void AddEngineOptions(CLI::App& command, EngineArguments& arguments) {
  command.add_option("--model", arguments.model, "Model, a GGUF file")->required();
  command
      .add_option("--threads", arguments.threads,
                  "Threads that compute prompts; a single token takes one")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  command.add_option("--context", arguments.context, "Tokens per sequence")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command.add_option("--sequences", arguments.sequences, "Requests computed at the same time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      .add_option("--chunk-tokens", arguments.chunk_tokens,
                  "Tokens per chunk; the prefill node's is the most a decode node may use")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command.add_option("--cache-dtype", arguments.cache_dtype,
                     "Type of the KV cache, the same on both nodes: float16 (default), bfloat16 or "
                     "float32");
}

Result<LlamaOptions> CheckEngineArguments(const EngineArguments& arguments) {
  LlamaOptions options;
  options.model_path = arguments.model;
  options.context_tokens = arguments.context;
  options.sequences = arguments.sequences;
  options.chunk_tokens = arguments.chunk_tokens;
  options.batch_threads = arguments.threads;
  if (!arguments.cache_dtype.empty()) {
    KVSERVE_ASSIGN(const DType dtype, ParseDType(arguments.cache_dtype));
    KVSERVE_TRY(CheckDTypeSupported(dtype));
    options.cache_dtype = dtype;
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(arguments.model, error)) {
    return MakeError(ErrorCode::kBadInput, "--model " + arguments.model + " is not a file");
  }
  return options;
}

Result<std::unique_ptr<EngineWorker>> LoadEngine(const LlamaOptions& options) {
  PrepareProcessForEngines();
  std::fprintf(stderr, "kvserve: loading %s\n", options.model_path.c_str());
  const auto begin = Clock::now();
  auto worker = EngineWorker::Start([options] { return OpenLlamaEngine(options); });
  if (worker) {
    std::fprintf(stderr, "kvserve: loaded in %.1f s, %s cache\n", SecondsSince(begin),
                 std::string(DTypeName((*worker)->info().geometry.dtype)).c_str());
  }
  return worker;
}

Result<AuthToken> ReadToken(const std::string& path) {
  if (path.empty()) return AuthToken();
  return AuthToken::FromFile(path);
}

Result<HostPort> ParseAddress(const std::string& option, const std::string& text) {
  auto address = ParseHostPort(text);
  if (address) return address;
  return MakeError(ErrorCode::kInvalidArgument, option + ": " + address.error().message);
}

Status CheckExposure(const std::string& option, const HostPort& address, const AuthToken& token) {
  if (IsLoopback(address) || !token.empty()) return {};
  return MakeError(ErrorCode::kInvalidArgument,
                   option + " " + address.text() +
                       " is reachable from other machines: --token-file is required");
}

}  // namespace kvserve::tool
