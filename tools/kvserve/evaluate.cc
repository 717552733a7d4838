// kvserve evaluate: what profiles cost in quality and bytes, measured with the embedded engine.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "base/try.h"
#include "codec_arguments.h"
#include "command.h"
#include "engine/llama/llama_engine.h"
#include "engine/llama/process.h"
#include "evaluate_data.h"
#include "evaluate_report.h"
#include "evaluation/engine_evaluator.h"
#include "evaluation/retrieval_prompts.h"
#include "frame_tokens.h"
#include "profile_argument.h"
#include "progress.h"
#include "table.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kLargeBytes = std::uint64_t{2} << 30;
constexpr std::uint32_t kRetrievalTokens = 160;        // question and answer, at most
constexpr std::uint32_t kMostRetrievalPrompts = 1024;  // they are made before the first is scored
constexpr std::size_t kOwnContextTokens = 8192;        // records with longer contexts are skipped
constexpr std::uint64_t kRetrievalSeed[] = {1, 2, 3};  // of all, search, test

struct Arguments {
  std::string model;
  std::vector<std::string> profiles;
  std::string frame_tokens = "256";
  std::vector<std::uint32_t> context_tokens;
  EvaluatorOptions options;
  std::uint32_t retrieval = 8;
  std::string cache_dtype;
  std::string calibration;
  std::string fallback;
  std::vector<std::string> data;
  std::string split = "all";
  std::string kv_cache;
  std::uint32_t limit = 0;
};

// What is known before a model is loaded.
struct Plan {
  EvaluatorOptions options;
  std::vector<Profile> profiles;
  std::vector<Record> records;
  std::uint64_t retrieval_seed = 0;
  bool needs_queries = false;
  std::uint32_t needed_tokens = 0;  // of a sequence, for the context lengths that were asked for
  std::uint32_t wanted_tokens = 0;  // for the records' own contexts, if the model has as many
};

void Note(const std::string& text) {
  std::fprintf(stderr, "kvserve: note: %s\n", text.c_str());
}

Status CheckContexts(EvaluatorOptions& options, const Arguments& arguments) {
  if (!arguments.context_tokens.empty()) options.context_tokens = arguments.context_tokens;
  std::vector<std::uint32_t>& lengths = options.context_tokens;
  std::ranges::sort(lengths);
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  for (const std::uint32_t tokens : options.context_tokens) {
    KVSERVE_TRY(CheckTokens("--context-tokens", tokens, 1));
  }
  KVSERVE_TRY(CheckTokens("--scored-tokens", options.scored_tokens, 2));
  return CheckTokens("--generate", options.generate_tokens, 0);
}

void CountTokens(const Arguments& arguments, Plan& plan) {
  const std::uint32_t behind =
      std::max({plan.options.scored_tokens, plan.options.generate_tokens + 1,
                arguments.retrieval > 0 ? kRetrievalTokens : 0U});
  plan.needed_tokens = plan.options.context_tokens.back() + behind;
  std::size_t own = 0;
  for (const Record& record : plan.records) {
    if (record.task == Task::kLm || !IsScored(record.task)) continue;
    own = std::max(own, PlainText(record).size() + kRetrievalTokens);  // a token has a byte
  }
  plan.wanted_tokens = static_cast<std::uint32_t>(std::min(own, kOwnContextTokens));
}

// Usage and data: neither may cost the loading of a model.
Result<Plan> PlanOf(const Arguments& arguments) {
  Plan plan;
  plan.options = arguments.options;
  KVSERVE_ASSIGN(plan.options.frame_tokens, ParseFrameTokens(arguments.frame_tokens));
  KVSERVE_TRY(CheckContexts(plan.options, arguments));
  KVSERVE_ASSIGN(const Split split, ParseSplit(arguments.split));
  plan.retrieval_seed = kRetrievalSeed[static_cast<std::size_t>(split)];
  for (const std::string& text : arguments.profiles) {
    KVSERVE_ASSIGN(auto profile, LoadProfile(text));
    plan.profiles.push_back(std::move(profile));
  }
  CodecOptions& codec = plan.options.codec;
  KVSERVE_ASSIGN(codec.calibration, LoadArtefact(arguments.calibration));
  KVSERVE_ASSIGN(codec.fallback, LoadFallback(arguments.fallback));
  for (const Profile& profile : plan.profiles) {
    KVSERVE_TRY(FrameEncoder::Create(profile, codec));
    KVSERVE_ASSIGN(const bool queries, NeedsQueries(profile, DType::kFloat16));
    plan.needs_queries = plan.needs_queries || queries;
  }
  KVSERVE_ASSIGN(plan.records, ReadEvaluationData(arguments.data, split));
  CountTokens(arguments, plan);
  return plan;
}

// After the process is prepared for engines, which may start the program anew.
void WarnOfOverlap(const Arguments& arguments, const Plan& plan) {
  for (const std::string& name :
       CalibratedOn(plan.options.codec.calibration.get(), arguments.data)) {
    Note(arguments.calibration + " was calibrated on " + name +
         ", so quality on it says little about other data");
  }
}

Result<std::unique_ptr<Engine>> Open(const Arguments& arguments, const Plan& plan) {
  LlamaOptions options;
  options.model_path = arguments.model;
  options.context_tokens = std::max(plan.needed_tokens, plan.wanted_tokens);
  options.at_most_trained_context = true;
  options.chunk_tokens = plan.options.chunk_tokens;
  options.sequences = 1;
  options.tap_queries = plan.needs_queries;
  if (!arguments.cache_dtype.empty()) {
    KVSERVE_ASSIGN(options.cache_dtype, ParseDType(arguments.cache_dtype));
  }
  PrepareProcessForEngines();
  WarnOfOverlap(arguments, plan);
  KVSERVE_ASSIGN(auto engine, OpenLlamaEngine(options));
  const ModelInfo& info = engine->info();
  if (info.context_tokens < plan.needed_tokens) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--context-tokens " + std::to_string(plan.options.context_tokens.back()) +
                         " and what is scored behind it need " +
                         std::to_string(plan.needed_tokens) + " tokens, the model has " +
                         std::to_string(info.context_tokens));
  }
  std::uint64_t bytes = 0;
  for (const LayerGeometry& layer : info.geometry.layers) {
    bytes += LayerBytes(layer, info.geometry.dtype, info.context_tokens);
  }
  // The cache, a captured prompt, and a decoded one on its way into the cache.
  if (3 * bytes > kLargeBytes) {
    Note("sequences of " + std::to_string(info.context_tokens) + " tokens take up to " +
         BytesText(3 * bytes) + " of memory beside the model");
  }
  return engine;
}

Result<std::optional<CaptureStore>> OpenStore(const Arguments& arguments, const Plan& plan,
                                              const Engine& engine) {
  if (arguments.kv_cache.empty()) return std::nullopt;
  CaptureStore::Identity identity;
  identity.model = engine.info().fingerprint;
  identity.geometry = engine.info().geometry;
  identity.vocabulary = engine.info().vocabulary;
  identity.chunk_tokens = plan.options.chunk_tokens;
  identity.engine = EngineLibraryIdentity();
  KVSERVE_ASSIGN(auto store, CaptureStore::Open(arguments.kv_cache, std::move(identity), Note));
  return store;
}

Status AddPrompts(const Arguments& arguments, const Plan& plan, const Engine& engine,
                  EngineEvaluator& evaluator) {
  KVSERVE_TRY(evaluator.AddRecords(plan.records, arguments.limit));
  for (const std::uint32_t tokens : plan.options.context_tokens) {
    if (arguments.retrieval == 0) break;
    KVSERVE_ASSIGN(auto prompts,
                   MakeRetrievalPrompts(engine, {.context_tokens = tokens,
                                                 .prompts_per_kind = arguments.retrieval,
                                                 .seed = plan.retrieval_seed}));
    evaluator.AddPrompts(std::move(prompts));
  }
  return {};
}

Status RunEvaluate(const Arguments& arguments, const Invocation& invocation) {
  KVSERVE_ASSIGN(const Plan plan, PlanOf(arguments));
  KVSERVE_ASSIGN(const auto engine, Open(arguments, plan));
  KVSERVE_ASSIGN(auto store, OpenStore(arguments, plan, *engine));
  std::unique_ptr<Progress> progress;
  const auto show = [&](std::size_t done, std::size_t steps) {
    if (!progress) progress = std::make_unique<Progress>("evaluate", steps);
    progress->Set(done);
  };
  EngineEvaluator evaluator(*engine, plan.options, show, store ? &*store : nullptr);
  KVSERVE_TRY(AddPrompts(arguments, plan, *engine, evaluator));
  KVSERVE_ASSIGN(const auto scores, evaluator.Evaluate(plan.profiles));
  progress.reset();
  if (!invocation.json) {
    PrintEvaluation(scores);
    std::fprintf(stderr, "%zu prompts, %zu of them prefilled; %zu records too short or too long\n",
                 evaluator.prompts(), evaluator.captured(), evaluator.skipped());
    return {};
  }
  Json document = EvaluationJson(scores);
  document["model"] = engine->info().name;
  document["kv_dtype"] = DTypeName(engine->info().geometry.dtype);
  document["context_tokens"] = plan.options.context_tokens;
  document["split"] = arguments.split;
  document["unknown_length"] = plan.options.unknown_length;
  document["prompts"] = evaluator.prompts();
  document["prompts_digest"] = evaluator.digest();
  document["prefilled"] = evaluator.captured();
  document["skipped"] = evaluator.skipped();
  PrintJson(invocation, std::move(document));
  return {};
}

void AddDataOptions(CLI::App& command, Arguments& arguments) {
  command.add_option("--data", arguments.data,
                     "Records, .jsonl or .jsonl.gz; default: the data that is part of the program");
  command
      .add_option("--split", arguments.split,
                  "Half of the data and of the retrieval prompts: search, test, or all")
      ->capture_default_str();
  command.add_option("--limit", arguments.limit, "Records of each set to score at most; 0: all")
      ->capture_default_str();
  command
      .add_option("--context-tokens", arguments.context_tokens,
                  "Tokens of texts and retrieval prompts whose KV goes through the profile, any "
                  "number of times; default: 1536")
      ->expected(1)
      ->take_all();
  command
      .add_option("--scored-tokens", arguments.options.scored_tokens,
                  "Tokens of texts scored after the context")
      ->capture_default_str();
  command
      .add_option("--generate", arguments.options.generate_tokens,
                  "Tokens to generate after the context of texts; 0: none")
      ->capture_default_str();
  command
      .add_option("--retrieval", arguments.retrieval,
                  "Retrieval prompts of each kind at each context length; 0: none")
      ->check(CLI::Range(0U, kMostRetrievalPrompts))
      ->capture_default_str();
  command.add_option("--kv-cache", arguments.kv_cache,
                     "Folder to keep captured KV and references in for the next run");
}

void AddOptions(CLI::App& command, Arguments& arguments) {
  command.add_option("--model", arguments.model, "Model, a GGUF file")->required();
  command.add_option("--profile", arguments.profiles, kProfileHelp)
      ->required()
      ->expected(1)
      ->take_all();
  AddDataOptions(command, arguments);
  command.add_option("--frame-tokens", arguments.frame_tokens, "Tokens per frame, or 'all'")
      ->capture_default_str();
  command.add_flag("--unknown-length", arguments.options.unknown_length,
                   "Encode as if the prompt's length were not known while frames are sent");
  AddCalibrationOption(command, arguments.calibration);
  AddFallbackOption(command, arguments.fallback);
  command.add_option("--cache-dtype", arguments.cache_dtype,
                     "Type of the cache: float16 (default), bfloat16 or float32");
}

}  // namespace

void AddEvaluate(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand(
      "evaluate", "Measure quality, ratio and speed of profiles against no compression");
  AddOptions(command, *arguments);
  AddJsonFlag(command, invocation);
  command.footer(
      "The weights should be F16 (kvserve dequantize): 4-bit weights amplify tiny differences.\n"
      "A line of --data is a JSON object with id, set, task and the task's fields. Tasks: lm, "
      "cloze,\n"
      "mc, mc_prefix, math, qa, multi_qa, conv_qa, summ, code_line, code_gen (likelihood of the\n"
      "solution; nothing is executed), kv, kv_multi. docs/EVALUATION.md says how each is scored.\n"
      "Examples:\n"
      "  kvserve evaluate --model model-f16.gguf --profile lossless \\\n"
      "      --profile 'hadamard|uniform:k_levels=16,v_levels=8|rans' --kv-cache captures\n"
      "  kvserve evaluate --model model-f16.gguf --profile 'hadamard|uniform|rans' \\\n"
      "      --context-tokens 1024 --context-tokens 4096 --data texts.jsonl.gz --limit 4 --json");
  command.callback([arguments, &invocation] {
    invocation.run = [arguments, &invocation] { return RunEvaluate(*arguments, invocation); };
  });
}

}  // namespace kvserve::tool
