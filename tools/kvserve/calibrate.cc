// kvserve calibrate: what stages can learn about a model's KV from texts, as an artefact.
#include "calibration/calibrate.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/try.h"
#include "calibrate_summary.h"
#include "calibration/engine_source.h"
#include "calibration/forward_sensitivity.h"
#include "calibration/frame_expectation.h"
#include "calibration_data.h"
#include "command.h"
#include "engine/llama/llama_engine.h"
#include "engine/llama/process.h"
#include "frame_tokens.h"
#include "kv_file_source.h"
#include "library/calibration_file.h"
#include "output_argument.h"
#include "profile_argument.h"
#include "progress.h"
#include "tensorfile/output_file.h"

namespace kvserve::tool {
namespace {

constexpr std::uint32_t kPrefillTokens = 256;
constexpr std::uint32_t kWeighedTokens = 256;  // of the frames whose tokens are weighed

struct Arguments {
  std::string model;
  std::vector<std::string> data;
  std::vector<std::string> profiles = {"hadamard|uniform:k_levels=16,v_levels=8", "lossless"};
  std::vector<std::string> frame_tokens = {"64", "128", "256"};
  std::vector<std::string> compute;  // empty: what the data allow
  std::string sensitivity;
  std::vector<std::string> in_kind;
  std::vector<double> steps = {0.7, 1.2, 2};
  std::string selectors =
      "window:sinks=0,recent=32,outside=1,inside=4|expected:keys=seen,mean=offline,recency=1";
  unsigned threads = 1;
  std::uint32_t joint_columns = 1024;
  unsigned whitening_bits = 0;  // as many as suit the model
  unsigned predictor_bits = 0;
  unsigned predictor_layers = 0;
  unsigned query_bits = 0;
  std::uint32_t tokens = 1536;
  std::uint32_t limit = 0;
  std::string cache_dtype;
  std::string output;
};

Result<CalibrationOptions> OptionsOf(const Arguments& arguments) {
  KVSERVE_TRY(CheckTokens("--tokens", arguments.tokens, 2));
  CalibrationOptions options;
  options.frame_tokens.clear();
  for (const std::string& text : arguments.frame_tokens) {
    KVSERVE_ASSIGN(const std::uint32_t tokens, ParseFrameTokens(text));
    options.frame_tokens.push_back(std::min(tokens, arguments.tokens));
  }
  for (const std::string& text : arguments.profiles) {
    KVSERVE_ASSIGN(auto profile, LoadProfile(text));
    options.profiles.push_back(std::move(profile));
  }
  return options;
}

constexpr std::string_view kKlt = "klt";
constexpr std::string_view kQueries = "queries";
constexpr std::string_view kHeadScores = "head-scores";
constexpr std::string_view kTransform = "transform";
constexpr std::string_view kNothing = "none";

// What --compute transform needs beside a model and texts.
Result<TransformCalibration> TransformOf(const Arguments& arguments) {
  TransformCalibration transform;
  // A quantizer that takes weights, since a profile has one.
  KVSERVE_ASSIGN(transform.selectors, LoadProfile(arguments.selectors + "|mixed"));
  transform.frame_tokens = std::min(kWeighedTokens, arguments.tokens);
  transform.threads = arguments.threads;
  transform.training.joint_columns = arguments.joint_columns;
  transform.training.whitening_bits = arguments.whitening_bits;
  transform.training.predictor_bits = arguments.predictor_bits;
  transform.training.predictor_layers = arguments.predictor_layers;
  transform.training.query_bits = arguments.query_bits;
  transform.training.steps = arguments.steps;
  std::ranges::sort(transform.training.steps);
  return transform;
}

// Sets what is computed beside statistics and entropy classes; gives what these data lack for it.
Result<std::vector<std::string>> Choose(const Arguments& arguments, bool texts,
                                        CalibrationOptions& options) {
  const auto asked = [&](std::string_view what) {
    return arguments.compute.empty() ||
           std::ranges::find(arguments.compute, what) != arguments.compute.end();
  };
  if (arguments.compute.size() > 1 && asked(kNothing)) {
    return MakeError(ErrorCode::kInvalidArgument, "--compute none stands alone");
  }
  options.klt = asked(kKlt);
  options.joint_columns = arguments.joint_columns;
  options.query_statistics = texts && asked(kQueries);
  options.head_scores = texts && asked(kHeadScores);
  std::vector<std::string> lacking;
  for (const std::string_view what : {kQueries, kHeadScores}) {
    if (!texts && asked(what)) lacking.emplace_back(what);
  }
  if (!arguments.compute.empty() && asked(kTransform)) {
    if (!texts) lacking.emplace_back(kTransform);
    options.query_statistics = texts;  // selectors weigh by them
    KVSERVE_ASSIGN(options.transform, TransformOf(arguments));
  } else if (!arguments.sensitivity.empty() || !arguments.in_kind.empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--sensitivity and --in-kind are for --compute transform");
  }
  if (arguments.compute.empty() || lacking.empty()) return lacking;
  return MakeError(ErrorCode::kInvalidArgument,
                   "--compute " + lacking.front() +
                       " needs queries: give --model and texts; KV files hold none");
}

Result<std::unique_ptr<Engine>> Open(const Arguments& arguments, bool tap_queries) {
  LlamaOptions options;
  options.model_path = arguments.model;
  options.context_tokens = arguments.tokens;
  options.chunk_tokens = kPrefillTokens;
  options.sequences = 1;
  options.tap_queries = tap_queries;
  if (!arguments.cache_dtype.empty()) {
    KVSERVE_ASSIGN(options.cache_dtype, ParseDType(arguments.cache_dtype));
  }
  return OpenLlamaEngine(options);
}

Result<std::unique_ptr<CalibrationSource>> SourceOf(CalibrationFile& file, Engine* engine,
                                                    std::uint32_t limit_tokens) {
  if (file.kv) {
    auto source = std::make_unique<KvFileSource>(std::move(*file.kv), limit_tokens);
    file.tokens = source->tokens();
    return source;
  }
  std::vector<std::vector<Token>> prompts;
  for (const std::string& text : file.texts) {
    KVSERVE_ASSIGN(auto tokens, engine->Tokenize(text, true, false));
    tokens.resize(std::min<std::size_t>(tokens.size(), limit_tokens));
    file.tokens += tokens.size();
    prompts.push_back(std::move(tokens));
  }
  return std::make_unique<EngineSource>(*engine, std::move(prompts), kPrefillTokens);
}

Result<JoinedSource> JoinSources(std::vector<CalibrationFile>& files, Engine* engine,
                                 std::uint32_t limit_tokens) {
  std::vector<JoinedSource::Part> parts;
  for (CalibrationFile& file : files) {
    KVSERVE_ASSIGN(auto source, SourceOf(file, engine, limit_tokens));
    parts.push_back({file.path, std::move(source)});
  }
  if (engine != nullptr) {  // also without texts: KV files must be of this model
    const std::vector<std::vector<Token>> none;
    parts.push_back({"--model", std::make_unique<EngineSource>(*engine, none, kPrefillTokens)});
  }
  return JoinedSource::Create(std::move(parts));
}

// From the file, or from what the engine shows of these texts.
Result<Sensitivity> SensitivityOf(const Arguments& arguments,
                                  const std::vector<CalibrationFile>& files, Engine& engine) {
  if (!arguments.sensitivity.empty()) {
    return ReadSensitivity(arguments.sensitivity, engine.info().geometry);
  }
  std::vector<std::vector<Token>> prompts;
  for (const CalibrationFile& file : files) {
    for (const std::string& text : file.texts) {
      KVSERVE_ASSIGN(auto tokens, engine.Tokenize(text, true, false));
      tokens.resize(std::min<std::size_t>(tokens.size(), arguments.tokens));
      prompts.push_back(std::move(tokens));
    }
  }
  ForwardSensitivityOptions options;
  std::unique_ptr<Progress> progress;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!progress) progress = std::make_unique<Progress>("sensitivity", total);
    progress->Set(done);
  };
  return ForwardSensitivity(engine, prompts, options);
}

// Sets what frames to expect by the texts of --in-kind.
Status ExpectInKind(const Arguments& arguments, std::vector<CalibrationFile> files, Engine& engine,
                    CalibrationArtefact::Contents& contents) {
  KVSERVE_ASSIGN(auto source, JoinSources(files, &engine, arguments.tokens));
  Workers workers(arguments.threads);
  const CalibrationArtefact trained(contents, {});
  KVSERVE_ASSIGN(
      contents.frame_expectation,
      MeasureInKind(source, trained, std::min(kWeighedTokens, arguments.tokens), workers));
  return {};
}

// For people who hold the artefact and wonder where it is from.
std::string SourceText(const std::vector<CalibrationFile>& files,
                       const CalibrationOptions& options) {
  std::string text;
  for (const CalibrationFile& file : files) {
    text += (text.empty() ? "" : ", ") + std::filesystem::path(file.path).filename().string();
    if (!file.kv && file.texts.size() > 1) text += " (" + std::to_string(file.texts.size()) + ")";
  }
  for (const Profile& profile : options.profiles) text += "; " + profile.name;
  return text;
}

Status RunCalibrate(const Arguments& arguments, const Invocation& invocation) {
  // Usage and data first: neither may cost the loading of a model.
  KVSERVE_ASSIGN(CalibrationOptions options, OptionsOf(arguments));
  KVSERVE_TRY(CheckOutputIsNoInput(arguments.output, {arguments.model, arguments.sensitivity}));
  for (const std::string& path : arguments.in_kind) {
    KVSERVE_TRY(CheckOutputIsNoInput(arguments.output, {path}));
  }
  for (const std::string& path : arguments.data) {
    KVSERVE_TRY(CheckOutputIsNoInput(arguments.output, {path}));
  }
  for (const std::string& profile : arguments.profiles) {
    if (!NamesProfileFile(profile)) continue;
    KVSERVE_TRY(CheckOutputIsNoInput(arguments.output, {profile}));
  }
  KVSERVE_ASSIGN(auto files, ReadCalibrationFiles(arguments.data, arguments.limit));
  const bool texts = std::ranges::any_of(files, [](const auto& file) { return !file.kv; });
  if (texts && arguments.model.empty()) {
    return MakeError(ErrorCode::kInvalidArgument, "texts in --data need --model; KV files do not");
  }
  KVSERVE_ASSIGN(auto left_out, Choose(arguments, texts, options));
  KVSERVE_ASSIGN(auto in_kind, ReadCalibrationFiles(arguments.in_kind, 0));
  // It may start this process anew, which would leave the output's temporary name behind.
  if (!arguments.model.empty()) PrepareProcessForEngines();
  KVSERVE_ASSIGN(OutputFile output, OutputFile::Create(arguments.output));
  std::unique_ptr<Engine> engine;
  if (!arguments.model.empty()) {
    KVSERVE_ASSIGN(engine, Open(arguments, options.query_statistics || options.head_scores));
  }
  std::unique_ptr<Progress> trained;
  if (options.transform) {
    KVSERVE_ASSIGN(options.transform->sensitivity, SensitivityOf(arguments, files, *engine));
    options.transform->training.progress = [&](std::uint64_t done, std::uint64_t total) {
      if (!trained) trained = std::make_unique<Progress>("transform", total);
      trained->Set(done);
    };
  }
  KVSERVE_ASSIGN(auto source, JoinSources(files, engine.get(), arguments.tokens));
  std::unique_ptr<Progress> progress;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!progress) progress = std::make_unique<Progress>("calibrate", total);
    progress->Set(done);
  };
  double seconds = 0;
  CalibrationArtefact::Contents contents;
  {
    const ScopedTimer timer(seconds);
    KVSERVE_ASSIGN(contents, Calibrate(source, options));
  }
  progress.reset();
  trained.reset();
  if (!in_kind.empty()) {
    KVSERVE_TRY(ExpectInKind(arguments, std::move(in_kind), *engine, contents));
  }
  contents.source = SourceText(files, options);
  KVSERVE_ASSIGN(const auto bytes, FormatCalibration(contents));
  KVSERVE_TRY(output.Append(bytes));
  KVSERVE_TRY(output.Commit());
  PrintSummary(invocation, {files, contents, bytes, seconds, std::move(left_out)});
  return {};
}

void AddTransformOptions(CLI::App& command, Arguments& arguments) {
  command.add_option("--sensitivity", arguments.sensitivity,
                     "For transform: what errors cost, a file of python -m kvserve.sensitivity. "
                     "Default: measured by forward passes");
  command.add_option("--in-kind", arguments.in_kind,
                     "For transform: texts of the kinds to be served, not among --data, that a "
                     "drift guard compares with. Default: those of --data, and wider bounds");
  command
      .add_option("--steps", arguments.steps,
                  "For transform: steps of whiten that tables are learnt at, predictors at the "
                  "middle one; joined by commas")
      ->delimiter(',')
      ->check(CLI::Range(1e-3, 1e3))
      ->capture_default_str();
  command
      .add_option("--selectors", arguments.selectors,
                  "For transform: selectors of the profile, which weigh the tokens of the texts")
      ->capture_default_str();
  command
      .add_option("--whitening-bits", arguments.whitening_bits,
                  "For transform: bits of a value of the whitening's matrices, 2..8. Default: 8, "
                  "but 6 for large models, whose matrices would take more than 64 MB")
      ->check(CLI::Range(2, 8));
  command
      .add_option("--predictor-bits", arguments.predictor_bits,
                  "For transform: bits of a weight of the predictors, 2..8. Default: 8, but 4 for "
                  "large models")
      ->check(CLI::Range(2, 8));
  command
      .add_option("--predictor-layers", arguments.predictor_layers,
                  "For transform: layers before that planes are predicted from, 1..8. Default: 2, "
                  "but 1 for large models")
      ->check(CLI::Range(1, 8));
  command
      .add_option("--query-bits", arguments.query_bits,
                  "For transform: bits of a correlation of queries, 8 or 32. Default: 32, but 8 "
                  "for large models")
      ->check(CLI::IsMember({8, 32}));
  command.add_option("--threads", arguments.threads, "For transform: threads, 1..256")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

void AddOptions(CLI::App& command, Arguments& arguments) {
  command.add_option("--model", arguments.model, "Model, a GGUF file; needed for texts");
  command
      .add_option("--data", arguments.data,
                  "Texts: .jsonl or .jsonl.gz records, or any other file as one text; KV files "
                  "(safetensors, by whatever name) need no model")
      ->required();
  command.add_option("-o,--output", arguments.output, "Artefact to write (.calib)")->required();
  command.add_option("--tokens", arguments.tokens, "Tokens of each text or KV file at most")
      ->capture_default_str();
  command.add_option("--limit", arguments.limit, "Texts at most; 0: all")->capture_default_str();
  command
      .add_option("--profile", arguments.profiles,
                  "Profile whose symbols get entropy classes, its codec left out; may be repeated")
      ->expected(1)
      ->take_all()
      ->capture_default_str();
  command
      .add_option("--frame-tokens", arguments.frame_tokens,
                  "Tokens per frame, or 'all', that symbols are counted in; may be repeated")
      ->expected(1)
      ->take_all()
      ->capture_default_str();
  command
      .add_option("--compute", arguments.compute,
                  "Beside statistics and entropy tables: klt, queries (mean and covariance), "
                  "head-scores, transform (whitening, predictors, code tables), none; joined by "
                  "commas. Default: all that the data allow, but for transform")
      ->delimiter(',')
      ->check(CLI::IsMember({"klt", "queries", "head-scores", "transform", "none"}));
  AddTransformOptions(command, arguments);
  command
      .add_option("--joint-columns", arguments.joint_columns,
                  "Most values per token of a plane (heads x dim) that get a KLT over all heads")
      ->capture_default_str();
  command.add_option("--cache-dtype", arguments.cache_dtype,
                     "Type of the cache: float16 (default), bfloat16 or float32");
}

}  // namespace

void AddCalibrate(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand(
      "calibrate", "Learn statistics, transforms and entropy tables of a model's KV");
  AddOptions(command, *arguments);
  AddJsonFlag(command, invocation);
  command.footer(
      "Sender and receiver need the same artefact: frames name it by its checksum.\n"
      "Token 0 of each text is left out of the statistics, since attention sinks distort it.\n"
      "Queries, head scores and transform need --model and texts: KV files hold no queries.\n"
      "Examples:\n"
      "  kvserve calibrate --model model-f16.gguf --data texts.jsonl.gz --limit 16 -o m.calib\n"
      "  kvserve calibrate --model model-f16.gguf --data texts.jsonl.gz --compute transform \\\n"
      "          --sensitivity model.sensitivity.safetensors --threads 2 -o m.calib\n"
      "  kvserve calibrate --data kv.safetensors --profile 'uniform:levels=16' -o m.calib --json");
  command.callback([arguments, &invocation] {
    invocation.run = [arguments, &invocation] { return RunCalibrate(*arguments, invocation); };
  });
}

}  // namespace kvserve::tool
