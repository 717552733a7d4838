// Any chain of stages over any values, on every instruction set of the machine: the same frames
// come out, and the same values.
//
// Input: u8, selectors in its high half and transforms in its low half, each modulo 3; those;
// quantizer; codec (see chosen_stage.h); chunk
// (see chunk_case.h).
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chosen_stage.h"
#include "chunk_case.h"
#include "decode_contract.h"
#include "pipeline/testing/query_sample.h"
#include "stages/testing/frames.h"

namespace kvserve::fuzzing {
namespace {

constexpr std::uint64_t kMostBytes = 1U << 14;

bool AddStage(StageKind kind, Choices& choices, Profile& profile) {
  const auto chosen = ChooseStage(kind, choices);
  if (!chosen) return false;
  profile.stages.push_back(
      {chosen->entry->info->id, chosen->settings.version(), chosen->settings.values()});
  return true;
}

std::optional<Profile> ChooseProfile(Choices& choices) {
  Profile profile;
  const unsigned shape = choices.Byte();  // the high half: selectors, of which old seeds have none
  const unsigned transforms = shape % 16 % 3;
  for (unsigned i = 0; i < shape / 16 % 3; ++i) {
    if (!AddStage(StageKind::kSelector, choices, profile)) return std::nullopt;
  }
  for (unsigned i = 0; i < transforms; ++i) {
    if (!AddStage(StageKind::kTransform, choices, profile)) return std::nullopt;
  }
  if (!AddStage(StageKind::kQuantizer, choices, profile)) return std::nullopt;
  if (!AddStage(StageKind::kCodec, choices, profile)) return std::nullopt;
  return profile;
}

struct Outcome {
  bool encoded = false;
  std::vector<std::byte> frame;
  KvBuffer decoded;
};

// Encodes the chunk, and decodes `frame` or, without one, what was encoded.
Outcome Run(FrameEncoder& encoder, const KvBuffer& chunk, const std::vector<std::byte>* frame) {
  static FrameDecoder plain_decoder = FrameDecoder::Create().value();
  Outcome outcome;
  const testing::QuerySample queries(chunk.geometry(), chunk.tokens());
  const EncodeOptions options{.queries = &queries.view()};
  outcome.encoded = encoder.Encode(chunk.view(), options, outcome.frame).has_value();
  if (!outcome.encoded) return outcome;
  const auto& bytes = frame == nullptr ? outcome.frame : *frame;
  auto size = plain_decoder.Decode(bytes, {}, outcome.decoded);
  if (!size && size.error().code == ErrorCode::kMismatch) {
    size = testing::DecodeSample(bytes, outcome.decoded);  // names an artefact
  }
  if (!size) Fail("encoded, but: " + size.error().message);
  if (*size != bytes.size()) Fail("decoded another length");
  return outcome;
}

void CheckEveryIsa(const KvBuffer& chunk, const Profile& profile) {
  auto encoder = testing::MakeSampleEncoder(profile, chunk.geometry());
  if (!encoder) return;
  const Outcome best = Run(*encoder, chunk, nullptr);
  static const auto isas = AvailableIsas();
  for (const std::string_view isa : isas) {
    if (isa == ActiveIsa()) continue;
    const PinnedKernels pinned(isa);
    const Outcome other = Run(*encoder, chunk, &best.frame);
    if (other.encoded != best.encoded) Fail(std::string(isa) + " has another outcome");
    if (!best.encoded) continue;
    if (other.frame != best.frame) Fail(std::string(isa) + " encodes another frame");
    CheckSame(best.decoded.view(), other.decoded.view(), std::string(isa).c_str());
  }
}

}  // namespace
}  // namespace kvserve::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvserve::fuzzing;
  Choices choices({data, size});
  const auto profile = ChooseProfile(choices);
  if (!profile) return 0;
  kvserve::KvBuffer chunk;
  if (!FillChunk(choices, chunk) || chunk.bytes() > kMostBytes) return 0;
  CheckEveryIsa(chunk, *profile);
  return 0;
}
