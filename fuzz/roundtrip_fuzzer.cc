// Any profile text over any values: what encodes must decode, and lossless chains give the bits
// back.
//
// Input: u8 size of the profile's text and the text, chunk (see chunk_case.h).
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "chosen_stage.h"
#include "chunk_case.h"
#include "decode_contract.h"
#include "kvserve/codec.h"
#include "stages/registry.h"
#include "stages/testing/frames.h"
#include "stages/testing/reference.h"

namespace kvserve::fuzzing {
namespace {

bool Lossless(const Profile& profile) {
  return std::ranges::all_of(profile.stages, [](const StageSpec& stage) {
    const auto table = BuiltinStages();
    const auto entry = std::ranges::find_if(
        table, [&](const StageEntry& candidate) { return candidate.info->id == stage.id; });
    return entry != table.end() && entry->info->lossless;
  });
}

// The executor that is fast and the one that is plain.
void CheckReference(const KvBuffer& chunk, const Profile& profile,
                    const std::vector<std::byte>& frame, const KvBuffer& decoded) {
  CodedSections sections;
  if (!testing::EncodeByReference(chunk.view(), profile, sections) ||
      !testing::HasSections(frame, sections)) {
    Fail("the reference executor encodes another frame");
  }
  KvBuffer plain;
  if (!testing::DecodeByReference(frame, plain)) Fail("the reference executor refuses the frame");
  CheckSame(decoded.view(), std::as_const(plain).view(), "reference executor");
}

void CheckRoundTrip(const KvBuffer& chunk, const Profile& profile) {
  std::vector<std::byte> frame;
  if (!testing::EncodeSample(chunk.view(), profile, frame)) {
    CodedSections sections;
    if (testing::EncodeByReference(chunk.view(), profile, sections)) {
      Fail("only the reference executor encodes the chunk");
    }
    return;
  }
  KvBuffer decoded;
  const auto size = testing::DecodeSample(frame, decoded);
  if (!size) Fail("encoded, but: " + size.error().message);
  if (*size != frame.size()) Fail("decoded another length");
  if (Lossless(profile)) CheckSame(chunk.view(), std::as_const(decoded).view(), "lossless");
  CheckReference(chunk, profile, frame, decoded);
  const ScalarKernels pinned;
  std::vector<std::byte> scalar;
  if (!testing::EncodeSample(chunk.view(), profile, scalar) || scalar != frame) {
    Fail("scalar kernels encode another frame");
  }
}

}  // namespace
}  // namespace kvserve::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvserve;
  fuzzing::Choices input({data, size});
  const auto text = input.Take(input.Byte());
  const auto profile = ParseProfile({reinterpret_cast<const char*>(text.data()), text.size()});
  if (!profile) return 0;
  KvBuffer chunk;
  if (!fuzzing::FillChunk(input, chunk)) return 0;
  fuzzing::CheckRoundTrip(chunk, *profile);
  return 0;
}
