// The one-shot forms of the public codec, and what belongs to no frame.
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/try.h"
#include "kvserve/codec.h"
#include "pipeline/profile_options.h"
#include "pipeline/profile_text.h"
#include "pipeline/stage_lookup.h"
#include "stages/presets.h"
#include "stages/registry.h"

namespace kvserve {

namespace {

// Says that a name which no stage has is a preset's, or that there are presets too.
Error WithPresets(Error error, std::string_view text) {
  for (const std::string_view segment : SplitText(text, '|')) {
    const std::string_view name = segment.substr(0, segment.find(':'));
    if (FindPreset(name) != nullptr && FindStage(BuiltinStages(), name) == nullptr) {
      error.message =
          "profile: preset '" + std::string(name) + "' is a whole profile and stands alone";
      return error;
    }
  }
  if (error.message.find("unknown stage") != std::string::npos) {
    error.message += "; presets are " + PresetNames();
  }
  return error;
}

}  // namespace

Result<Profile> ParseProfile(std::string_view text) {
  if (NamesPreset(text)) return ParsePreset(text);
  auto profile = ParseProfileText(text, BuiltinStages());
  if (profile) return profile;
  return tl::unexpected<Error>(WithPresets(std::move(profile).error(), text));
}

Status EncodeFrame(const ConstKvView& view, const Profile& profile, const EncodeOptions& options,
                   std::vector<std::byte>& out, StageSeconds* seconds, const CodecOptions& codec) {
  KVSERVE_ASSIGN(FrameEncoder encoder, FrameEncoder::Create(profile, codec));
  return encoder.Encode(view, options, out, seconds);
}

Result<std::size_t> DecodeFrame(std::span<const std::byte> bytes, const DecodeOptions& options,
                                KvBuffer& out, StageSeconds* seconds, const CodecOptions& codec) {
  KVSERVE_ASSIGN(FrameDecoder decoder, FrameDecoder::Create(codec));
  return decoder.Decode(bytes, options, out, seconds);
}

Fingerprint PrefixKey(const Fingerprint& model, std::span<const std::int32_t> tokens) {
  return Hash128(std::as_bytes(tokens), Hash64(std::as_bytes(std::span(model.bytes))));
}

}  // namespace kvserve
