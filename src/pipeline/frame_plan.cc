#include "pipeline/frame_plan.h"

#include <algorithm>

#include "base/checked.h"
#include "base/try.h"
#include "pipeline/executor_faults.h"

namespace kvserve {

template <typename Byte>
Status PlanFrame(const Chain& chain, std::span<const OrderedPlane<Byte>> planes,
                 const FrameContext& frame, Arena& arena, FramePlan& plan) {
  const auto& quantizer = chain.quantizer();
  std::uint64_t total = 0;
  std::uint64_t largest = 0;
  plan.symbols.resize(planes.size());
  plan.offsets.resize(planes.size());
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
    const PlaneContext context = ContextOf(frame, plane, arena);
    KVSERVE_TRY(Named(
        quantizer.stage->Plan(context, plane.view.dtype, plane.view.heads, plane.view.dim, symbols),
        context, *quantizer.info));
    arena.Reset();
    if (symbols.alphabet < 1 || symbols.alphabet > 256) {
      return Named(MakeError(ErrorCode::kInternal, "alphabet is outside 1..256"), context,
                   *quantizer.info);
    }
    plan.offsets[p] = total;
    const auto sum = CheckedAdd(total, symbols.count());
    if (!sum) return MakeError(ErrorCode::kResourceExhausted, "a frame has too many symbols");
    total = *sum;
    largest = std::max(largest, plane.view.values());
  }
  plan.symbol_count = total;
  plan.largest_plane = largest;
  return {};
}

void PlaceSymbols(std::span<std::uint8_t> storage, FramePlan& plan) {
  for (std::size_t p = 0; p < plan.symbols.size(); ++p) {
    plan.symbols[p].symbols = storage.subspan(plan.offsets[p], plan.symbols[p].count());
  }
}

template Status PlanFrame(const Chain&, std::span<const OrderedPlane<std::byte>>,
                          const FrameContext&, Arena&, FramePlan&);
template Status PlanFrame(const Chain&, std::span<const OrderedPlane<const std::byte>>,
                          const FrameContext&, Arena&, FramePlan&);

}  // namespace kvserve
