// kvserve encode: a KV file becomes a file of frames.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "base/try.h"
#include "codec_arguments.h"
#include "codec_report.h"
#include "command.h"
#include "frame_tokens.h"
#include "kvserve/codec.h"
#include "output_argument.h"
#include "profile_argument.h"
#include "progress.h"
#include "stages/profile_facts.h"
#include "tensorfile/kv_file.h"

namespace kvserve::tool {
namespace {

struct Arguments {
  std::string profile;
  std::string frame_tokens = "256";
  CodecArguments codec;
  std::string fallback;
  std::string input;
  std::string output;
};

Status EncodeFile(const std::string& path, const KvFileReader& input, FrameEncoder& encoder,
                  std::uint32_t frame_tokens, OutputFile& output, CodecReport& report) {
  const KvFileInfo& info = input.info();
  Progress progress("encode", info.tokens.size());
  KvBuffer chunk;
  std::vector<std::byte> frame;
  RequestMemory request = encoder.NewRequest();
  for (TokenRange tokens{info.tokens.begin, info.tokens.begin}; tokens.end < info.tokens.end;) {
    tokens = {tokens.end, tokens.end + std::min(frame_tokens, info.tokens.end - tokens.end)};
    KVSERVE_TRY(input.Read(tokens, chunk));
    EncodeOptions options;
    options.model = info.model;
    options.prompt_tokens = info.prompt_tokens;
    options.request = &request;
    if (tokens.end == info.tokens.end) options.key = info.key;  // the file names no shorter prefix
    frame.clear();
    {
      const ScopedTimer timer(report.seconds);
      const auto status =
          encoder.Encode(std::as_const(chunk).view(), options, frame, &report.stage_seconds);
      if (!status) return MakeError(status.error().code, path + ": " + status.error().message);
    }
    KVSERVE_TRY(output.Append(frame));
    report.clamped_values += encoder.clamped_values();
    if (encoder.drift().fell_back && report.drift_fallbacks++ == 0) {
      report.drift_reason = encoder.drift().reason;
    }
    report.wire_bytes += frame.size();
    ++report.frames;
    progress.Set(tokens.end - info.tokens.begin);
  }
  return {};
}

// What a user would not expect of the result.
void Warn(const Profile& profile, const CodecReport& report) {
  if (report.clamped_values > 0) {
    std::fprintf(stderr,
                 "kvserve: warning: %llu values are beyond what the quantizer can express and were "
                 "limited to it; a scale (fp8:scale=power_of_two) avoids that\n",
                 static_cast<unsigned long long>(report.clamped_values));
  }
  if (report.drift_fallbacks > 0) {
    std::fprintf(stderr,
                 "kvserve: note: %llu of %llu frames are unlike the artefact's texts and were "
                 "encoded by the fallback profile; the first by its %s\n",
                 static_cast<unsigned long long>(report.drift_fallbacks),
                 static_cast<unsigned long long>(report.frames), report.drift_reason.c_str());
  }
  const bool uncompressed = profile.stages == ParseProfile("none")->stages;  // headers are on top
  if (report.wire_bytes > report.raw_bytes && !uncompressed) {
    std::fprintf(stderr,
                 "kvserve: warning: the frames (%llu bytes) are larger than the KV (%llu bytes); "
                 "more tokens per frame (--frame-tokens) or --profile none help\n",
                 static_cast<unsigned long long>(report.wire_bytes),
                 static_cast<unsigned long long>(report.raw_bytes));
  }
}

Status RunEncode(const Arguments& arguments, const Invocation& invocation) {
  // Usage first: a wrong profile must not cost the reading of a large file.
  KVSERVE_ASSIGN(const std::uint32_t frame_tokens, ParseFrameTokens(arguments.frame_tokens));
  const std::string profile_file = NamesProfileFile(arguments.profile) ? arguments.profile : "";
  KVSERVE_TRY(CheckOutputIsNoInput(arguments.output,
                                   {arguments.input, arguments.codec.calibration, profile_file}));
  KVSERVE_ASSIGN(const Profile profile, LoadProfile(arguments.profile));
  KVSERVE_ASSIGN(CodecOptions codec, LoadCodecOptions(arguments.codec));
  KVSERVE_ASSIGN(codec.fallback, LoadFallback(arguments.fallback));
  KVSERVE_ASSIGN(FrameEncoder encoder, FrameEncoder::Create(profile, codec));
  KVSERVE_ASSIGN(const KvFileReader input, KvFileReader::Open(arguments.input));
  if (input.info().tokens.empty()) {
    return MakeError(ErrorCode::kBadInput, arguments.input + " holds no tokens");
  }
  KVSERVE_ASSIGN(OutputFile output, OutputFile::Create(arguments.output));
  CodecReport report;
  report.raw_bytes = RawBytes(input.info());
  KVSERVE_TRY(EncodeFile(arguments.input, input, encoder, frame_tokens, output, report));
  KVSERVE_TRY(output.Commit());
  nlohmann::json extra = {{"profile", profile.name},
                          {"quality_class", QualityClassName(IsLossless(profile.stages))},
                          {"frame_tokens", frame_tokens}};
  if (!arguments.fallback.empty()) extra["drift_fallbacks"] = report.drift_fallbacks;
  Warn(profile, report);
  if (frame_tokens == kMaxTokens) extra["frame_tokens"] = "all";
  PrintCodecReport(invocation, report, "encode_s", std::move(extra));
  return {};
}

}  // namespace

void AddEncode(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand("encode", "Compress a KV file to a file of frames");
  command
      .add_option("kv.safetensors", arguments->input,
                  "KV file: tensors k.<layer>, v.<layer>, [token, head, dim]")
      ->required();
  command.add_option("-o,--output", arguments->output, "File of frames to write (.kvs)")
      ->required();
  command.add_option("--profile", arguments->profile, kProfileHelp)->required();
  command.add_option("--frame-tokens", arguments->frame_tokens, "Tokens per frame, or 'all'")
      ->capture_default_str();
  AddCodecOptions(command, arguments->codec);
  AddFallbackOption(command, arguments->fallback);
  AddJsonFlag(command, invocation);
  command.footer(
      "Examples:\n"
      "  kvserve encode --profile lossless kv.safetensors -o kv.kvs\n"
      "  kvserve encode --profile 'hadamard|uniform:k_levels=16,v_levels=8|rans' \\\n"
      "      --frame-tokens all kv.safetensors -o kv.kvs --json");
  command.callback([arguments, &invocation] {
    invocation.run = [arguments, &invocation] { return RunEncode(*arguments, invocation); };
  });
}

}  // namespace kvserve::tool
