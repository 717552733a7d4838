// kvserve capture: the KV of a text, computed by the embedded engine, as a KV file.
#include <algorithm>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/try.h"
#include "command.h"
#include "engine/llama/llama_engine.h"
#include "engine/llama/process.h"
#include "frame_tokens.h"
#include "kvserve/codec.h"
#include "layer_json.h"
#include "output_argument.h"
#include "progress.h"
#include "table.h"
#include "tensorfile/kv_file.h"
#include "text_file.h"

namespace kvserve::tool {
namespace {

struct Arguments {
  std::string model;
  std::string text;
  std::uint32_t tokens = 1024;
  std::uint32_t chunk_tokens = 256;
  std::string cache_dtype;
  std::string output;
};

nlohmann::json GeometryJson(const KvGeometry& geometry) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerGeometry& layer : geometry.layers) layers.push_back(LayerJson(layer));
  return {{"dtype", DTypeName(geometry.dtype)}, {"layers", std::move(layers)}};
}

Result<std::unique_ptr<Engine>> Open(const Arguments& arguments) {
  LlamaOptions options;
  options.model_path = arguments.model;
  options.context_tokens = arguments.tokens;
  options.chunk_tokens = arguments.chunk_tokens;
  options.sequences = 1;
  if (!arguments.cache_dtype.empty()) {
    KVSERVE_ASSIGN(options.cache_dtype, ParseDType(arguments.cache_dtype));
  }
  PrepareProcessForEngines();
  return OpenLlamaEngine(options);
}

Result<std::vector<Token>> PromptTokens(const Engine& engine, const Arguments& arguments,
                                        std::string_view text) {
  KVSERVE_ASSIGN(auto tokens, engine.Tokenize(text, true, false));
  if (tokens.empty()) return MakeError(ErrorCode::kBadInput, arguments.text + " has no tokens");
  tokens.resize(std::min<std::size_t>(tokens.size(), arguments.tokens));
  return tokens;
}

KvFileInfo InfoOf(const ModelInfo& model, std::span<const Token> tokens) {
  KvFileInfo info;
  info.geometry = model.geometry;
  info.prompt_tokens = static_cast<std::uint32_t>(tokens.size());
  info.tokens = {0, info.prompt_tokens};
  for (const LayerGeometry& layer : model.geometry.layers) {
    info.layer_tokens.push_back(TokensHeld(layer, info.tokens, info.prompt_tokens));
  }
  info.model = model.fingerprint;
  info.key = PrefixKey(model.fingerprint, tokens);
  return info;
}

// Chunk by chunk: window layers hold no token for longer than their window.
Status CaptureChunks(Engine& engine, std::span<const Token> tokens, std::uint32_t chunk_tokens,
                     KvFileWriter& file, double& prefill_s) {
  const auto total = static_cast<std::uint32_t>(tokens.size());
  Progress progress("capture", total);
  KVSERVE_ASSIGN(const SequenceId sequence, engine.OpenSequence());
  KvBuffer chunk;
  for (std::uint32_t begin = 0; begin < total;) {
    const TokenRange range{begin, begin + std::min(chunk_tokens, total - begin)};
    {
      const ScopedTimer timer(prefill_s);
      KVSERVE_TRY(engine.Prefill(sequence, tokens.subspan(begin, range.size()), begin));
    }
    KVSERVE_TRY(engine.Capture(sequence, range, total, chunk));
    KVSERVE_TRY(file.Write(std::as_const(chunk).view()));
    begin = range.end;
    progress.Set(begin);
  }
  return {};
}

Status RunCapture(const Arguments& arguments, const Invocation& invocation) {
  // Usage and text first: neither may cost the loading of a model.
  KVSERVE_TRY(CheckTokens("--tokens", arguments.tokens, 1));
  KVSERVE_TRY(CheckTokens("--chunk-tokens", arguments.chunk_tokens, 1));
  KVSERVE_TRY(CheckOutputIsNoInput(arguments.output, {arguments.model, arguments.text}));
  KVSERVE_ASSIGN(const std::string text, ReadTextFile(arguments.text));
  KVSERVE_ASSIGN(const auto engine, Open(arguments));
  KVSERVE_ASSIGN(const auto tokens, PromptTokens(*engine, arguments, text));
  const KvFileInfo info = InfoOf(engine->info(), tokens);
  KVSERVE_ASSIGN(auto file, KvFileWriter::Create(arguments.output, info));
  double prefill_s = 0;
  KVSERVE_TRY(CaptureChunks(*engine, tokens, arguments.chunk_tokens, file, prefill_s));
  KVSERVE_TRY(file.Commit());
  const std::uint64_t raw_bytes = RawBytes(info);
  if (invocation.json) {
    PrintJson(invocation, {{"geometry", GeometryJson(info.geometry)},
                           {"raw_bytes", raw_bytes},
                           {"prefill_s", prefill_s},
                           {"tokens", info.prompt_tokens},
                           {"model", info.model.hex()},
                           {"key", info.key.hex()}});
    return {};
  }
  Table table;
  table.Add({"model", engine->info().name + " (" + engine->info().architecture + ")"});
  table.Add({"layers", std::to_string(info.geometry.layers.size()) + ", " +
                           std::string(DTypeName(info.geometry.dtype))});
  table.Add({"tokens", std::to_string(info.prompt_tokens)});
  table.Add({"raw", BytesText(raw_bytes)});
  table.Add({"prefill_s", Fixed(prefill_s, 3)});
  table.Print();
  return {};
}

}  // namespace

void AddCapture(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand("capture", "Compute the KV of a text and save it");
  command.add_option("--model", arguments->model, "Model, a GGUF file")->required();
  command.add_option("--text", arguments->text, "Text file; its first tokens are the prompt")
      ->required();
  command.add_option("--tokens", arguments->tokens, "Tokens to take at most")
      ->capture_default_str();
  command.add_option("--chunk-tokens", arguments->chunk_tokens, "Tokens evaluated at a time")
      ->capture_default_str();
  command.add_option("--cache-dtype", arguments->cache_dtype,
                     "Type of the cache: float16 (default), bfloat16 or float32");
  command.add_option("-o,--output", arguments->output, "KV file to write (.safetensors)")
      ->required();
  AddJsonFlag(command, invocation);
  command.footer(
      "Example:\n"
      "  kvserve capture --model model.gguf --text book.txt --tokens 1024 -o kv.safetensors");
  command.callback([arguments, &invocation] {
    invocation.run = [arguments, &invocation] { return RunCapture(*arguments, invocation); };
  });
}

}  // namespace kvserve::tool
