// kvserve calibrate: what stages can learn about a model's KV from texts, as an artefact.
#include "calibration/calibrate.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/try.h"
#include "calibration/engine_source.h"
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
#include "table.h"
#include "tensorfile/output_file.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kPrefillTokens = 256;

struct Arguments {
  std::string model;
  std::vector<std::string> data;
  std::vector<std::string> profiles = {"hadamard|uniform:k_levels=16,v_levels=8", "lossless"};
  std::vector<std::string> frame_tokens = {"64", "128", "256"};
  std::uint32_t tokens = 1536;
  std::size_t limit = 0;
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

Result<std::unique_ptr<Engine>> Open(const Arguments& arguments) {
  LlamaOptions options;
  options.model_path = arguments.model;
  options.context_tokens = arguments.tokens;
  options.chunk_tokens = kPrefillTokens;
  options.sequences = 1;
  if (!arguments.cache_dtype.empty()) {
    KVSERVE_ASSIGN(options.cache_dtype, ParseDType(arguments.cache_dtype));
  }
  PrepareProcessForEngines();
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

Json EntropyJson(const CalibrationArtefact::Contents& contents) {
  Json rows = Json::array();
  for (const EntropyClasses& classes : contents.entropy) {
    rows.push_back({{"alphabet", classes.alphabet}, {"classes", classes.frequencies.size()}});
  }
  return rows;
}

void PrintResult(const Invocation& invocation, const std::vector<CalibrationFile>& files,
                 const CalibrationArtefact::Contents& contents, std::span<const std::byte> bytes,
                 double seconds) {
  if (invocation.json) {
    Json data = Json::array();
    for (const CalibrationFile& file : files) {
      data.push_back({{"path", file.path}, {"texts", file.texts.size()}, {"tokens", file.tokens}});
    }
    PrintJson(invocation, {{"layers", contents.geometry.layers.size()},
                           {"bytes", bytes.size()},
                           {"data", std::move(data)},
                           {"seconds", seconds},
                           {"checksum", Hash128(bytes).hex()},
                           {"model", contents.model.empty() ? Json() : Json(contents.model.hex())},
                           {"tokens", contents.tokens},
                           {"entropy", EntropyJson(contents)}});
    return;
  }
  Table table;
  table.Add({"layers", std::to_string(contents.geometry.layers.size()) + ", " +
                           std::string(DTypeName(contents.geometry.dtype))});
  table.Add({"tokens", std::to_string(contents.tokens)});
  for (const EntropyClasses& classes : contents.entropy) {
    table.Add({"alphabet " + std::to_string(classes.alphabet),
               std::to_string(classes.frequencies.size()) + " entropy classes"});
  }
  table.Add({"size", BytesText(bytes.size())});
  table.Add({"checksum", Hash128(bytes).hex()});
  table.Add({"seconds", Fixed(seconds, 1)});
  table.Print();
}

Status RunCalibrate(const Arguments& arguments, const Invocation& invocation) {
  // Usage and data first: neither may cost the loading of a model.
  KVSERVE_ASSIGN(CalibrationOptions options, OptionsOf(arguments));
  KVSERVE_TRY(CheckOutputIsNoInput(arguments.output, {arguments.model}));
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
  KVSERVE_ASSIGN(OutputFile output, OutputFile::Create(arguments.output));
  std::unique_ptr<Engine> engine;
  if (!arguments.model.empty()) {
    KVSERVE_ASSIGN(engine, Open(arguments));
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
  contents.source = SourceText(files, options);
  KVSERVE_ASSIGN(const auto bytes, FormatCalibration(contents));
  KVSERVE_TRY(output.Append(bytes));
  KVSERVE_TRY(output.Commit());
  PrintResult(invocation, files, contents, bytes, seconds);
  return {};
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
  command.add_option("--cache-dtype", arguments.cache_dtype,
                     "Type of the cache: float16 (default), bfloat16 or float32");
}

}  // namespace

void AddCalibrate(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command =
      *app.add_subcommand("calibrate", "Learn statistics and entropy tables of a model's KV");
  AddOptions(command, *arguments);
  AddJsonFlag(command, invocation);
  command.footer(
      "Sender and receiver need the same artefact: frames name it by its checksum.\n"
      "Token 0 of each text is left out of the statistics, since attention sinks distort it.\n"
      "Examples:\n"
      "  kvserve calibrate --model model-f16.gguf --data texts.jsonl.gz --limit 16 -o m.calib\n"
      "  kvserve calibrate --data kv.safetensors --profile 'uniform:levels=16' -o m.calib --json");
  command.callback([arguments, &invocation] {
    invocation.run = [arguments, &invocation] { return RunCalibrate(*arguments, invocation); };
  });
}

}  // namespace kvserve::tool
