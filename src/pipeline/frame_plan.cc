#include "pipeline/frame_plan.h"

#include <algorithm>

#include "base/checked.h"
#include "base/try.h"
#include "pipeline/executor_faults.h"

namespace kvserve {
namespace {

// Every run as a plane; a plane that lies in none is one.
void ListRuns(bool in_runs, FramePlan& plan) {
  std::size_t count = 0;
  const auto add = [&](const SymbolPlane& plane, SymbolRun run) {
    if (count == plan.runs.size()) plan.runs.emplace_back();
    SymbolPlane& listed = plan.runs[count++];
    listed.layer = plane.layer;
    listed.kind = plane.kind;
    listed.tokens = run.tokens;
    listed.columns = run.columns;
    listed.alphabet = run.alphabet;
    listed.symbols = {};
    listed.token_classes.clear();
  };
  for (const SymbolPlane& plane : plan.symbols) {
    if (!in_runs) break;
    for (const SymbolRun& run : plane.runs) add(plane, run);
    if (!plane.runs.empty()) continue;
    add(plane, {plane.tokens, plane.columns, plane.alphabet});
    plan.runs[count - 1].token_classes = plane.token_classes;
  }
  plan.runs.resize(count);
}

}  // namespace

template <typename Byte>
Status PlanFrame(const Chain& chain, std::span<const OrderedPlane<Byte>> planes,
                 const FrameContext& frame, Arena& arena, FramePlan& plan) {
  const auto& quantizer = chain.quantizer();
  plan.largest_plane = 0;
  plan.symbols.resize(planes.size());
  for (std::size_t p = 0; p < planes.size(); ++p) {
    const OrderedPlane<Byte>& plane = planes[p];
    SymbolPlane& symbols = plan.symbols[p];
    symbols.layer = plane.layer;
    symbols.kind = plane.kind;
    symbols.tokens = plane.tokens.size();
    symbols.columns = 0;
    symbols.alphabet = 256;
    symbols.symbols = {};
    symbols.token_classes.clear();
    symbols.head_classes.clear();
    symbols.runs.clear();
    const PlaneContext context = ContextOf(frame, plane, arena);
    KVSERVE_TRY(Named(
        quantizer.stage->Plan(context, plane.view.dtype, plane.view.heads, plane.view.dim, symbols),
        context, *quantizer.info));
    arena.Reset();
    if (symbols.alphabet < 1 || symbols.alphabet > 256) {
      return Named(MakeError(ErrorCode::kInternal, "alphabet is outside 1..256"), context,
                   *quantizer.info);
    }
    plan.largest_plane = std::max(plan.largest_plane, plane.view.values());
  }
  return LayOutSymbols(plan);
}

Status LayOutSymbols(FramePlan& plan) {
  std::uint64_t total = 0;
  bool in_runs = false;
  plan.offsets.resize(plan.symbols.size());
  for (std::size_t p = 0; p < plan.symbols.size(); ++p) {
    plan.offsets[p] = total;
    const auto sum = CheckedAdd(total, plan.symbols[p].count());
    if (!sum) return MakeError(ErrorCode::kResourceExhausted, "a frame has too many symbols");
    total = *sum;
    in_runs = in_runs || !plan.symbols[p].runs.empty();
  }
  plan.symbol_count = total;
  ListRuns(in_runs, plan);
  return {};
}

void PlaceSymbols(std::span<std::uint8_t> storage, FramePlan& plan) {
  for (std::size_t p = 0; p < plan.symbols.size(); ++p) {
    plan.symbols[p].symbols = storage.subspan(plan.offsets[p], plan.symbols[p].count());
  }
  for (SymbolPlane& run : plan.runs) {
    run.symbols = storage.first(run.count());
    storage = storage.subspan(run.count());
  }
}

template Status PlanFrame(const Chain&, std::span<const OrderedPlane<std::byte>>,
                          const FrameContext&, Arena&, FramePlan&);
template Status PlanFrame(const Chain&, std::span<const OrderedPlane<const std::byte>>,
                          const FrameContext&, Arena&, FramePlan&);

}  // namespace kvserve
