// The one-shot forms of the public codec, and what belongs to no frame.
#include <utility>

#include "base/hash.h"
#include "base/try.h"
#include "kvserve/codec.h"
#include "pipeline/profile_text.h"
#include "stages/registry.h"

namespace kvserve {

Result<Profile> ParseProfile(std::string_view text) {
  return ParseProfileText(text, BuiltinStages());
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
