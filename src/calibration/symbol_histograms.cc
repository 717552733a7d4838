// The codec `none` writes each symbol as one byte, planes in coding order: that stream is counted.
#include "calibration/symbol_histograms.h"

#include <algorithm>
#include <string>

#include "base/arena.h"
#include "base/try.h"
#include "kernels/histogram/histogram.h"
#include "pipeline/plane_order.h"
#include "pipeline/reference_executor.h"
#include "pipeline/stage_lookup.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

void AddCounts(std::span<const std::uint8_t> symbols, std::uint32_t alphabet,
               HistogramsByAlphabet& out) {
  const SymbolCounts counts = CountSymbols(symbols, alphabet);
  const auto used = std::span(counts).first(alphabet);
  if (std::ranges::count_if(used, [](auto count) { return count > 0; }) < 2) return;
  SymbolHistograms& histograms = out[alphabet];
  histograms.alphabet = alphabet;
  for (const auto count : used) histograms.counts.push_back(static_cast<std::uint32_t>(count));
}

}  // namespace

Result<SymbolCounter> SymbolCounter::Create(const Profile& profile, DType dtype) {
  const StageEntry* const none = FindStage(BuiltinStages(), StageKind::kCodec, "none");
  std::vector<StageSpec> stages = profile.stages;
  std::erase_if(stages, [](const StageSpec& spec) {
    const StageEntry* const entry = FindStage(BuiltinStages(), spec.id);
    return entry != nullptr && entry->info->kind == StageKind::kCodec;
  });
  stages.push_back({none->info->id, none->info->version, {}});
  KVSERVE_ASSIGN(Chain chain, Chain::Create(stages, BuiltinStages(), dtype, Device::kHost,
                                            ProfileOrigin::kCaller));
  return SymbolCounter(std::move(chain));
}

Status SymbolCounter::Add(const ConstKvView& frame, const CalibrationArtefact* artefact,
                          HistogramsByAlphabet& out) const {
  Arena arena;
  FrameContext context;
  context.geometry = frame.geometry;
  context.tokens = frame.tokens;
  context.artefact = artefact;
  context.arena = &arena;
  CodedSections coded;
  KVSERVE_TRY(EncodePlanes(chain_, frame, context, coded));
  std::span<const std::uint8_t> symbols(reinterpret_cast<const std::uint8_t*>(coded.symbols.data()),
                                        coded.symbols.size());
  for (const auto& plane : CodingOrder(frame)) {
    PlaneContext plane_context;
    plane_context.frame = &context;
    plane_context.layer = plane.layer;
    plane_context.kind = plane.kind;
    plane_context.tokens = plane.tokens;
    plane_context.arena = &arena;
    SymbolPlane shape;
    shape.layer = plane.layer;
    shape.kind = plane.kind;
    shape.tokens = plane.tokens.size();
    KVSERVE_TRY(chain_.quantizer().stage->Plan(plane_context, plane.view.dtype, plane.view.heads,
                                               plane.view.dim, shape));
    if (shape.count() > symbols.size()) {
      return MakeError(ErrorCode::kInternal, "fewer symbols than the quantizer has planned");
    }
    AddCounts(symbols.first(shape.count()), shape.alphabet, out);
    symbols = symbols.subspan(shape.count());
  }
  return {};
}

}  // namespace kvserve
