// kvserve decode: a file of frames becomes a KV file.
#include <memory>

#include "base/clock.h"
#include "base/try.h"
#include "codec_arguments.h"
#include "codec_report.h"
#include "command.h"
#include "frame_sequence.h"
#include "kvserve/codec.h"
#include "output_argument.h"
#include "progress.h"
#include "stages/profile_facts.h"
#include "tensorfile/dtype_convert.h"
#include "tensorfile/input_file.h"
#include "tensorfile/kv_file.h"

namespace kvserve::tool {
namespace {

struct Arguments {
  std::string input;
  std::string output;
  std::string dtype;
  bool clamp = false;
  CodecArguments codec;
};

// A file of frames, read and verified.
struct Input {
  std::string path;
  std::vector<std::byte> bytes;
  FrameSequence sequence;
};

// For errors that are about the input alone: those of other files name them themselves.
tl::unexpected<Error> Named(const Input& input, const Error& error) {
  return MakeError(error.code, input.path + ": " + error.message);
}

Result<Input> ReadInput(const std::string& path) {
  Input input{path, {}, {}};
  KVSERVE_ASSIGN(input.bytes, ReadFile(path));
  auto sequence = ReadFrameSequence(input.bytes);
  if (!sequence) return Named(input, sequence.error());
  input.sequence = std::move(*sequence);
  return input;
}

// Decodes all frames into `output`.
Status DecodeFrames(const Input& input, DType dtype, FrameDecoder& decoder, KvFileWriter& output,
                    CodecReport& report) {
  const FrameSequence& sequence = input.sequence;
  Progress progress("decode", sequence.frame_begin.size());
  KvBuffer chunk;
  KvBuffer converted;
  for (std::size_t i = 0; i < sequence.frame_begin.size(); ++i) {
    const std::size_t offset = sequence.frame_begin[i];
    {
      const ScopedTimer timer(report.seconds);
      const auto used =
          decoder.Decode(std::span(input.bytes).subspan(offset), {}, chunk, &report.stage_seconds);
      if (!used) return Named(input, FrameError(i, offset, used.error()).value());
    }
    const KvBuffer* result = &chunk;
    if (dtype != sequence.info.geometry.dtype) {
      const auto count =
          ConvertDType(std::as_const(chunk).view(), dtype, OutOfRangePolicy::kClamp, converted);
      if (!count) return Named(input, count.error());
      report.clamped_values += *count;
      result = &converted;
    }
    KVSERVE_TRY(output.Write(result->view()));
    progress.Set(i + 1);
  }
  return {};
}

Result<DType> TargetDType(const std::string& name, DType frames) {
  if (name.empty()) return frames;
  KVSERVE_ASSIGN(const DType dtype, ParseDType(name));
  KVSERVE_TRY(CheckDTypeSupported(dtype));
  return dtype;
}

Status DecodeFile(const Arguments& arguments, const Input& input, FrameDecoder& decoder,
                  const Invocation& invocation) {
  KvFileInfo info = input.sequence.info;
  KVSERVE_ASSIGN(const DType dtype, TargetDType(arguments.dtype, info.geometry.dtype));
  if (dtype != info.geometry.dtype) {
    // A fingerprint covers the cache's dtype: the converted values belong to no known cache.
    info.geometry.dtype = dtype;
    info.model = {};
    info.key = {};
  }
  KVSERVE_ASSIGN(KvFileWriter output, KvFileWriter::Create(arguments.output, info));
  CodecReport report;
  report.raw_bytes = RawBytes(input.sequence.info);
  report.wire_bytes = input.bytes.size();
  report.frames = input.sequence.frame_begin.size();
  KVSERVE_TRY(DecodeFrames(input, dtype, decoder, output, report));
  if (report.clamped_values > 0 && !arguments.clamp) {
    return MakeError(ErrorCode::kBadInput,
                     input.path + ": " + std::to_string(report.clamped_values) +
                         " values are beyond the range of " + std::string(DTypeName(dtype)) +
                         "; --clamp limits them");
  }
  KVSERVE_TRY(output.Commit());
  PrintCodecReport(
      invocation, report, "decode_s",
      {{"dtype", DTypeName(dtype)}, {"quality_class", QualityClassName(input.sequence.lossless)}});
  return {};
}

Status RunDecode(const Arguments& arguments, const Invocation& invocation) {
  KVSERVE_TRY(TargetDType(arguments.dtype, DType::kFloat16));  // usage before any reading
  KVSERVE_TRY(
      CheckOutputIsNoInput(arguments.output, {arguments.input, arguments.codec.calibration}));
  KVSERVE_ASSIGN(const CodecOptions codec, LoadCodecOptions(arguments.codec));
  KVSERVE_ASSIGN(FrameDecoder decoder, FrameDecoder::Create(codec));
  KVSERVE_ASSIGN(const Input input, ReadInput(arguments.input));
  return DecodeFile(arguments, input, decoder, invocation);
}

}  // namespace

void AddDecode(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand("decode", "Restore a KV file from a file of frames");
  command.add_option("x.kvs", arguments->input, "File of frames")->required();
  command.add_option("-o,--output", arguments->output, "KV file to write (.safetensors)")
      ->required();
  CLI::Option* const dtype = command.add_option(
      "--dtype", arguments->dtype,
      "Convert the values to float16, bfloat16 or float32; without it they keep their type");
  command
      .add_flag("--clamp", arguments->clamp,
                "Limit values beyond the range of --dtype and count them, instead of failing")
      ->needs(dtype);
  AddCodecOptions(command, arguments->codec);
  AddJsonFlag(command, invocation);
  command.footer(
      "Converted values lose the model fingerprint, which covers the type.\n"
      "Examples:\n"
      "  kvserve decode kv.kvs -o kv.safetensors\n"
      "  kvserve decode kv.kvs -o kv.safetensors --dtype float16 --clamp --json");
  command.callback([arguments, &invocation] {
    invocation.run = [arguments, &invocation] { return RunDecode(*arguments, invocation); };
  });
}

}  // namespace kvserve::tool
