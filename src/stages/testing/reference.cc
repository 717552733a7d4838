#include "stages/testing/reference.h"

#include <algorithm>

#include "base/try.h"
#include "frame/frame.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/testing/query_sample.h"
#include "stages/registry.h"
#include "stages/testing/frames.h"

namespace kvserve::testing {
namespace {

std::span<const std::byte> SectionOf(const FrameView& frame, SectionKind kind) {
  for (const Section& section : frame.sections) {
    if (section.kind == kind) return section.bytes;
  }
  return {};
}

}  // namespace

Status EncodeByReference(const ConstKvView& view, const Profile& profile, CodedSections& out) {
  KVSERVE_ASSIGN(const Chain chain,
                 Chain::Create(profile.stages, BuiltinStages(), view.geometry->dtype, Device::kHost,
                               ProfileOrigin::kCaller));
  FrameContext frame;
  frame.geometry = view.geometry;
  frame.tokens = view.tokens;
  const auto artefact = chain.needs_artefact() ? SampleArtefact(*view.geometry) : nullptr;
  frame.artefact = artefact.get();
  const QuerySample queries(*view.geometry, view.tokens);
  frame.queries = &queries.view();
  return EncodePlanes(chain, view, frame, out);
}

Status DecodeByReference(std::span<const std::byte> bytes, KvBuffer& out,
                         std::uint64_t max_raw_bytes) {
  KVSERVE_ASSIGN(const FrameView frame, ReadFrame(bytes));
  KVSERVE_ASSIGN(const Chain chain,
                 Chain::Create(frame.header.stages, BuiltinStages(), frame.header.dtype,
                               Device::kHost, ProfileOrigin::kFrame));
  if (chain.needs_artefact() == frame.header.artefact.empty()) {
    return MakeError(ErrorCode::kCorruptData, "an artefact is needed and not named, or not needed");
  }
  const KvGeometry geometry = ModelGeometry(frame.header);
  FrameContext context;
  context.geometry = &geometry;
  context.tokens = frame.header.tokens;
  context.prompt_tokens = frame.header.prompt_tokens;
  const auto artefact = chain.needs_artefact() ? SampleArtefact(geometry) : nullptr;
  context.artefact = artefact.get();
  std::vector<KvBuffer::LayerTokens> layers;
  for (const FrameLayer& layer : frame.header.layers) layers.push_back({layer.layer, layer.tokens});
  KVSERVE_TRY(out.Resize(geometry, frame.header.tokens, layers, max_raw_bytes));
  return DecodePlanes(
      chain,
      {SectionOf(frame, SectionKind::kClasses), SectionOf(frame, SectionKind::kSide),
       SectionOf(frame, SectionKind::kSymbols)},
      context, out.view());
}

bool HasSections(std::span<const std::byte> bytes, const CodedSections& sections) {
  const auto frame = ReadFrame(bytes);
  return frame && std::ranges::equal(SectionOf(*frame, SectionKind::kClasses), sections.classes) &&
         std::ranges::equal(SectionOf(*frame, SectionKind::kSide), sections.side) &&
         std::ranges::equal(SectionOf(*frame, SectionKind::kSymbols), sections.symbols);
}

}  // namespace kvserve::testing
