// kvserve bench codec: encoding and decoding beside memcpy.
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/try.h"
#include "bench_verbs.h"
#include "codec_arguments.h"
#include "codec_rows.h"
#include "evaluation/speed/codec_bench.h"
#include "evaluation/speed/memory_speed.h"
#include "evaluation/speed/sample_kv.h"
#include "evaluation/speed/synthetic_kv.h"
#include "frame_tokens.h"
#include "kernels/isa/isa.h"
#include "kv_source.h"
#include "profile_argument.h"
#include "progress.h"

namespace kvserve::tool {
namespace {

constexpr std::uint32_t kSyntheticTokens = 512;

struct Arguments {
  std::string data;
  std::string calibration;
  std::vector<std::string> profiles;
  std::vector<std::string> frame_tokens;
  std::vector<std::uint32_t> threads;
  std::vector<std::string> isas;
  double seconds = 0.3;
  std::uint64_t memcpy_bytes = std::uint64_t{1} << 30;
};

// What is given replaces the default; as soon as profiles or frames are, all combinations run.
Result<std::vector<CodecCase>> Plan(const Arguments& arguments) {
  std::vector<CodecCase> cases = DefaultCases(!arguments.calibration.empty());
  if (!arguments.profiles.empty() || !arguments.frame_tokens.empty()) {
    std::vector<std::uint32_t> frames;
    for (const std::string& text : arguments.frame_tokens) {
      KVSERVE_ASSIGN(const std::uint32_t tokens, ParseFrameTokens(text));
      frames.push_back(tokens);
    }
    if (frames.empty()) frames = {64, 128, 256, kMaxTokens};
    const auto names = arguments.profiles.empty() ? DefaultProfiles() : arguments.profiles;
    cases.clear();
    for (const std::string& name : names) {
      KVSERVE_ASSIGN(const Profile profile, LoadProfile(name));
      for (const std::uint32_t tokens : frames) cases.push_back({name, profile, tokens, {1, 2}});
    }
  }
  for (CodecCase& work : cases) {
    if (!arguments.threads.empty()) work.threads = arguments.threads;
  }
  return cases;
}

Result<KvSet> SampleSet(DType dtype) {
  KvBuffer kv;
  KVSERVE_TRY(LoadSample(dtype, kv));
  const std::uint32_t tokens = kv.tokens().end;
  const std::string suffix = dtype == DType::kFloat16 ? "-f16" : "-bf16";
  return KvSet::Create(kSampleName + suffix, std::move(kv), tokens);
}

Result<KvSet> SyntheticSet() {
  KvBuffer kv;
  KVSERVE_TRY(MakeSyntheticKv(LlamaGeometry(), kSyntheticTokens, kv));
  return KvSet::Create(kSyntheticName, std::move(kv), kSyntheticTokens);
}

Result<KvSet> FileSet(const std::string& path, const BenchOptions& options) {
  CodecOptions codec;
  codec.calibration = options.calibration;
  KvBuffer kv;
  KVSERVE_TRY(LoadKv(path, codec, kv));
  const std::uint32_t tokens = kv.tokens().end;
  return KvSet::Create(path, std::move(kv), tokens);
}

// One set of KV in memory at a time.
std::vector<std::function<Result<KvSet>()>> Sources(const Arguments& arguments,
                                                    const BenchOptions& options) {
  if (!arguments.data.empty()) return {[&] { return FileSet(arguments.data, options); }};
  return {[] { return SampleSet(DType::kFloat16); }, [] { return SampleSet(DType::kBFloat16); },
          [] { return SyntheticSet(); }};
}

// At most: frames that hold the whole request fall together.
std::uint64_t RowsOf(std::span<const CodecCase> cases, const BenchOptions& options) {
  std::uint64_t rows = 0;
  for (const CodecCase& work : cases) rows += work.threads.size();
  return rows * std::max<std::size_t>(1, options.isas.size());
}

Status MeasureMemory(const Arguments& arguments, std::span<const std::uint32_t> threads,
                     CodecRows& rows) {
  for (const std::uint32_t count : threads) {
    KVSERVE_ASSIGN(const Rate rate,
                   MeasureMemcpy(arguments.memcpy_bytes, count, arguments.seconds));
    rows.AddMemcpy(count, arguments.memcpy_bytes, rate);
  }
  return {};
}

Status MeasureAll(const Arguments& arguments, const std::vector<CodecCase>& cases,
                  const BenchOptions& options, CodecRows& rows) {
  const auto sources = Sources(arguments, options);
  Progress progress("bench codec", sources.size() * RowsOf(cases, options));
  std::uint64_t done = 0;
  for (const auto& source : sources) {
    KVSERVE_ASSIGN(const KvSet data, source());
    // After the first data: a file that cannot be read must not cost the time.
    if (done == 0) KVSERVE_TRY(MeasureMemory(arguments, cases.front().threads, rows));
    KVSERVE_TRY(RunCodecBench(data, cases, options, [&](const CodecRow& row) {
      rows.Add(row);
      progress.Set(++done);
    }));
  }
  return {};
}

Status RunBenchCodec(const Arguments& arguments, const Invocation& invocation) {
  if (!(arguments.seconds >= 0.001 && arguments.seconds <= 600.0)) {
    return MakeError(ErrorCode::kInvalidArgument, "--seconds is outside 0.001..600");
  }
  KVSERVE_ASSIGN(const std::vector<CodecCase> cases, Plan(arguments));
  BenchOptions options;
  options.isas = arguments.isas;
  options.seconds = arguments.seconds;
  options.skip_unsupported = arguments.profiles.empty();
  KVSERVE_TRY(CheckIsas(options.isas));
  KVSERVE_ASSIGN(options.calibration, LoadArtefact(arguments.calibration));
  for (const CodecCase& work : cases) {
    KVSERVE_TRY(FrameEncoder::Create(work.profile, {.calibration = options.calibration}));
  }
  CodecRows rows;
  KVSERVE_TRY(MeasureAll(arguments, cases, options, rows));
  rows.Print(invocation);
  return {};
}

}  // namespace

void AddBenchCodec(CLI::App& bench, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command =
      *bench.add_subcommand("codec", "Speed of encoding and decoding beside memcpy, LZ4 and zstd");
  command.add_option("--data", arguments->data,
                     "KV file or file of frames; default: the SmolLM2 sample that is part of the "
                     "program (float16, and the same as bfloat16), and synthetic KV of the shape "
                     "of Llama-3.1-8B");
  command.add_option(
      "--profile", arguments->profiles,
      "Profile, any number of times; default: a list beside lossless, LZ4, zstd, and "
      "with --calib the profile `calibrated` on data of its model");
  AddCalibrationOption(command, arguments->calibration);
  command.add_option("--frame-tokens", arguments->frame_tokens,
                     "Tokens per frame or 'all', any number of times; default: 64 128 256 all");
  command.add_option("--threads", arguments->threads, "Threads, any number of times; default: 1 2")
      ->check(CLI::Range(1, 256));
  command
      .add_option("--isa", arguments->isas,
                  "Instruction sets, separated by commas; default: the best, or KVSERVE_ISA")
      ->delimiter(',');
  command
      .add_option("--seconds", arguments->seconds, "Seconds to measure each direction of a row for")
      ->capture_default_str();
  command.add_option("--memcpy-bytes", arguments->memcpy_bytes, "Size of the buffers of memcpy")
      ->check(CLI::Range(std::uint64_t{1} << 20, std::uint64_t{1} << 40))
      ->capture_default_str();
  AddJsonFlag(command, invocation);
  command.footer(
      "Rates are raw bytes per second, medians of 3 to 9 repetitions over more memory than the\n"
      "caches hold. Frames and values are compared with the reference executor's before.\n"
      "Examples:\n"
      "  kvserve bench codec\n"
      "  kvserve bench codec --profile 'hadamard|uniform|rans' --threads 1 --isa avx2,scalar\n"
      "  kvserve bench codec --data kv.safetensors --frame-tokens 128 --json");
  command.callback([arguments, &invocation] {
    invocation.run = [arguments, &invocation] { return RunBenchCodec(*arguments, invocation); };
  });
}

}  // namespace kvserve::tool
