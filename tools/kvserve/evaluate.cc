// kvserve evaluate: what profiles cost in quality and bytes, measured with the embedded engine.
#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "base/try.h"
#include "codec_arguments.h"
#include "command.h"
#include "engine/llama/llama_engine.h"
#include "engine/llama/process.h"
#include "evaluation/engine_evaluator.h"
#include "frame_tokens.h"
#include "profile_argument.h"
#include "progress.h"
#include "table.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;

struct Arguments {
  std::string model;
  std::vector<std::string> profiles;
  std::string frame_tokens = "256";
  LmOptions options;
  std::string cache_dtype;
  std::string calibration;
  std::vector<std::string> data;
  std::size_t limit = 0;
};

Result<LmOptions> OptionsOf(const Arguments& arguments) {
  LmOptions options = arguments.options;
  KVSERVE_ASSIGN(options.frame_tokens, ParseFrameTokens(arguments.frame_tokens));
  KVSERVE_TRY(CheckTokens("--context-tokens", options.context_tokens, 1));
  KVSERVE_TRY(CheckTokens("--scored-tokens", options.scored_tokens, 2));
  return options;
}

Result<std::unique_ptr<Engine>> Open(const Arguments& arguments, const LmOptions& options) {
  LlamaOptions engine;
  engine.model_path = arguments.model;
  engine.context_tokens = options.context_tokens + options.scored_tokens;
  engine.chunk_tokens = options.chunk_tokens;
  engine.sequences = 1;
  if (!arguments.cache_dtype.empty()) {
    KVSERVE_ASSIGN(engine.cache_dtype, ParseDType(arguments.cache_dtype));
  }
  PrepareProcessForEngines();
  return OpenLlamaEngine(engine);
}

Json IntervalJson(const Interval& interval) {
  return {interval.low, interval.high};
}

Json TotalJson(const ProfileScore& score) {
  return {{"profile", score.profile},
          {"n", score.n},
          {"kl", score.kl},
          {"kl_ci95", IntervalJson(score.kl_ci95)},
          {"top1_agreement", score.top1_agreement},
          {"nll_delta", score.nll_delta},
          {"compression_ratio", score.compression_ratio},
          {"wire_bytes", score.wire_bytes},
          {"raw_bytes", score.raw_bytes},
          {"encode_bytes_per_s", score.encode_bytes_per_s},
          {"decode_bytes_per_s", score.decode_bytes_per_s},
          {"accuracy_lower_bound", score.accuracy_lower_bound}};
}

Json DatasetsJson(const ProfileScore& score) {
  Json datasets = Json::object();
  for (const auto& [name, set] : score.datasets) {
    datasets[name] = {{"n", set.n},
                      {"metric", set.metric},
                      {"baseline", set.baseline},
                      {"value", set.value},
                      {"relative_accuracy", set.relative_accuracy},
                      {"ci95", IntervalJson(set.ci95)},
                      {"kl", set.kl},
                      {"compression_ratio", set.compression_ratio}};
  }
  return datasets;
}

void PrintScores(const Invocation& invocation, const std::vector<ProfileScore>& scores,
                 const EngineEvaluator& evaluator) {
  if (invocation.json) {
    Json document = {{"datasets", DatasetsJson(scores.front())},
                     {"total", TotalJson(scores.front())},
                     {"skipped", evaluator.skipped()}};
    if (scores.size() > 1) {
      for (const ProfileScore& score : scores) document["profiles"].push_back(TotalJson(score));
    }
    PrintJson(invocation, std::move(document));
    return;
  }
  Table table(
      {"profile", "ratio", "kl", "kl 95 %", "top-1", "nll delta", "encode MB/s", "decode MB/s"});
  for (const ProfileScore& score : scores) {
    table.Add({score.profile, Fixed(score.compression_ratio, 2), Fixed(score.kl, 5),
               Fixed(score.kl_ci95.low, 5) + "-" + Fixed(score.kl_ci95.high, 5),
               Fixed(score.top1_agreement, 4), Fixed(score.nll_delta, 5),
               Fixed(score.encode_bytes_per_s / 1e6, 1), Fixed(score.decode_bytes_per_s / 1e6, 1)});
  }
  table.Print();
  std::fprintf(stderr, "%zu texts, %zu too short\n", evaluator.prompts(), evaluator.skipped());
}

Status RunEvaluate(const Arguments& arguments, const Invocation& invocation) {
  // Usage and data first: neither may cost the loading of a model.
  KVSERVE_ASSIGN(const LmOptions options, OptionsOf(arguments));
  std::vector<Profile> profiles;
  for (const std::string& text : arguments.profiles) {
    KVSERVE_ASSIGN(auto profile, LoadProfile(text));
    profiles.push_back(std::move(profile));
  }
  CodecOptions codec;
  KVSERVE_ASSIGN(codec.calibration, LoadArtefact(arguments.calibration));
  for (const Profile& profile : profiles) KVSERVE_TRY(FrameEncoder::Create(profile, codec));
  std::vector<Record> records;
  for (const std::string& path : arguments.data) {
    KVSERVE_ASSIGN(auto read, ReadRecords(path));
    std::ranges::move(read, std::back_inserter(records));
  }
  KVSERVE_ASSIGN(const auto engine, Open(arguments, options));
  std::unique_ptr<Progress> progress;
  const auto show = [&](std::size_t done, std::size_t steps) {
    if (!progress) progress = std::make_unique<Progress>("evaluate", steps);
    progress->Set(done);
  };
  EngineEvaluator evaluator(*engine, options, show, codec);
  KVSERVE_TRY(evaluator.AddTexts(records, arguments.limit));
  KVSERVE_ASSIGN(const auto scores, evaluator.Evaluate(profiles));
  progress.reset();
  PrintScores(invocation, scores, evaluator);
  return {};
}

void AddOptions(CLI::App& command, Arguments& arguments) {
  command.add_option("--model", arguments.model, "Model, a GGUF file")->required();
  command.add_option("--profile", arguments.profiles, kProfileHelp)
      ->required()
      ->expected(1)
      ->take_all();
  command.add_option("--data", arguments.data, "Texts, .jsonl or .jsonl.gz")->required();
  command.add_option("--frame-tokens", arguments.frame_tokens, "Tokens per frame, or 'all'")
      ->capture_default_str();
  command
      .add_option("--context-tokens", arguments.options.context_tokens,
                  "Tokens of each text whose KV goes through the profile")
      ->capture_default_str();
  command
      .add_option("--scored-tokens", arguments.options.scored_tokens,
                  "Tokens scored after the context")
      ->capture_default_str();
  command.add_option("--limit", arguments.limit, "Texts to score at most; 0: all")
      ->capture_default_str();
  AddCalibrationOption(command, arguments.calibration);
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
      "A line of --data is a JSON object with id, set, task (\"lm\") and text; texts shorter than\n"
      "context and scored tokens together are left out.\n"
      "Example:\n"
      "  kvserve evaluate --model model-f16.gguf --data texts.jsonl.gz --limit 4 \\\n"
      "      --profile lossless --profile 'hadamard|uniform:k_levels=16,v_levels=8|rans'");
  command.callback([arguments, &invocation] {
    invocation.run = [arguments, &invocation] { return RunEvaluate(*arguments, invocation); };
  });
}

}  // namespace kvserve::tool
