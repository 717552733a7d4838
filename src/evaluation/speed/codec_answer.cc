#include "evaluation/speed/codec_answer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "frame/frame.h"
#include "stages/frame_artefact.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

tl::unexpected<Error> Wrong(const std::string& what) {
  return MakeError(ErrorCode::kInternal, "wrong answer: " + what);
}

Status CheckPlane(const ConstPlaneView& wanted, const ConstPlaneView& found,
                  const std::string& where) {
  if (wanted.values() != found.values() || wanted.dtype != found.dtype) {
    return Wrong(where + " has another shape");
  }
  if (wanted.data == nullptr) return {};
  const std::size_t width = DTypeBytes(wanted.dtype);
  for (std::uint32_t token = 0; token < wanted.tokens; ++token) {
    for (std::uint32_t head = 0; head < wanted.heads; ++head) {
      if (std::memcmp(wanted.at(token, head, 0), found.at(token, head, 0), width * wanted.dim) !=
          0) {
        return Wrong(where + " differs at token " + std::to_string(token) + ", head " +
                     std::to_string(head));
      }
    }
  }
  return {};
}

// Each layer's own shapes, on memory that is not there yet.
Status ResizeAs(const ConstKvView& view, KvBuffer& out) {
  std::vector<KvBuffer::LayerTokens> layers;
  for (const auto& layer : view.layers) layers.push_back({layer.layer, layer.tokens});
  return out.Resize(*view.geometry, view.tokens, layers);
}

}  // namespace

Status CheckSame(const ConstKvView& wanted, const ConstKvView& found) {
  if (wanted.layers.size() != found.layers.size()) return Wrong("another number of layers");
  for (std::size_t i = 0; i < wanted.layers.size(); ++i) {
    const std::string layer = "layer " + std::to_string(wanted.layers[i].layer);
    KVSERVE_TRY(CheckPlane(wanted.layers[i].k, found.layers[i].k, layer + " K"));
    KVSERVE_TRY(CheckPlane(wanted.layers[i].v, found.layers[i].v, layer + " V"));
  }
  return {};
}

Result<CodecAnswer> ReferenceAnswer(const ConstKvView& chunk, const Profile& profile,
                                    std::uint32_t prompt_tokens,
                                    const CalibrationArtefact* calibration) {
  KVSERVE_ASSIGN(const Chain chain,
                 Chain::Create(profile.stages, BuiltinStages(), chunk.geometry->dtype,
                               Device::kHost, ProfileOrigin::kCaller));
  KVSERVE_TRY(CheckArtefactGiven(chain, calibration));
  if (chain.needs_artefact()) KVSERVE_TRY(CheckArtefactServes(*chunk.geometry, {}, *calibration));
  Arena arena;
  Workers workers;
  FrameContext context;
  context.geometry = chunk.geometry;
  context.tokens = chunk.tokens;
  context.prompt_tokens = prompt_tokens;
  context.arena = &arena;
  context.workers = &workers;
  if (chain.needs_artefact()) context.artefact = calibration;
  CodecAnswer answer;
  answer.lossless = chain.lossless();
  KVSERVE_TRY(EncodePlanes(chain, chunk, context, answer.sections));
  arena.Reset();
  KVSERVE_TRY(ResizeAs(chunk, answer.decoded));
  KVSERVE_TRY(DecodePlanes(chain,
                           {answer.sections.classes, answer.sections.side, answer.sections.symbols},
                           context, answer.decoded.view()));
  const ConstKvView decoded = std::as_const(answer.decoded).view();
  if (answer.lossless) KVSERVE_TRY(CheckSame(chunk, decoded));
  KVSERVE_ASSIGN(answer.error, MeasureError(chunk, decoded));
  return answer;
}

Status CheckEncoded(const CodecAnswer& answer, std::span<const std::byte> frame) {
  KVSERVE_ASSIGN(const FrameView view, ReadFrame(frame));
  const std::pair<SectionKind, std::span<const std::byte>> wanted[] = {
      {SectionKind::kClasses, answer.sections.classes},
      {SectionKind::kSide, answer.sections.side},
      {SectionKind::kSymbols, answer.sections.symbols}};
  for (const auto& [kind, bytes] : wanted) {
    std::span<const std::byte> found;
    for (const Section& section : view.sections) {
      if (section.kind == kind) found = section.bytes;
    }
    if (!std::ranges::equal(bytes, found)) {
      return Wrong("section " + std::string(SectionName(kind)) +
                   " is not that of the reference executor");
    }
  }
  return {};
}

}  // namespace kvserve
