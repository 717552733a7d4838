// The codec `none` writes each symbol as one byte, planes in coding order: that stream is counted.
#include "calibration/symbol_histograms.h"

#include <algorithm>
#include <string>

#include "base/arena.h"
#include "base/byte_io.h"
#include "base/try.h"
#include "kernels/histogram/histogram.h"
#include "pipeline/frame_plan.h"
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
  const auto planes = CodingOrder(frame);
  FramePlan plan;
  KVSERVE_TRY(PlanFrame<const std::byte>(chain_, planes, context, arena, plan));
  ByteReader classes(coded.classes);
  KVSERVE_TRY(chain_.quantizer().stage->ReadClasses(context, plan.symbols, classes));
  KVSERVE_TRY(LayOutSymbols(plan));
  if (plan.symbol_count != symbols.size()) {
    return MakeError(ErrorCode::kInternal, "other symbols than the quantizer has planned");
  }
  for (const SymbolPlane& plane : plan.coded()) {
    AddCounts(symbols.first(plane.count()), plane.alphabet, out);
    symbols = symbols.subspan(plane.count());
  }
  return {};
}

}  // namespace kvserve
