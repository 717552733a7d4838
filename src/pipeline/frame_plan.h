// What an executor lays out before it works: the symbols of every plane of a frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/chain.h"
#include "pipeline/plane_order.h"

namespace kvserve {

// Shapes of a frame's symbols; memory is kept from frame to frame.
struct FramePlan {
  std::vector<SymbolPlane> symbols;  // [plane], without storage
  std::vector<SymbolPlane> runs;     // of all planes, if one of them lies in runs
  std::vector<std::size_t> offsets;  // [plane] where its symbols begin among all
  std::size_t symbol_count = 0;
  std::size_t largest_plane = 0;  // values

  // What a codec sees.
  [[nodiscard]] std::span<SymbolPlane> coded() { return runs.empty() ? symbols : runs; }
};

// Asks the quantizer about every plane. Takes microseconds, so that a frame of other tokens, which
// may have other shapes, is simply planned again. `arena` is for the quantizer and reset after each
// plane. kResourceExhausted when sizes overflow, and what the quantizer says.
template <typename Byte>
[[nodiscard]] Status PlanFrame(const Chain& chain, std::span<const OrderedPlane<Byte>> planes,
                               const FrameContext& frame, Arena& arena, FramePlan& plan);

// Where the symbols of each plane and run lie; again once a quantizer has set classes.
// kResourceExhausted when their sum overflows.
[[nodiscard]] Status LayOutSymbols(FramePlan& plan);

// Gives every plane and run its part of `storage`, which has plan.symbol_count bytes.
void PlaceSymbols(std::span<std::uint8_t> storage, FramePlan& plan);

template <typename Byte>
[[nodiscard]] PlaneContext ContextOf(const FrameContext& frame, const OrderedPlane<Byte>& plane,
                                     Arena& arena) {
  PlaneContext context;
  context.frame = &frame;
  context.layer = plane.layer;
  context.kind = plane.kind;
  context.tokens = plane.tokens;
  context.arena = &arena;
  return context;
}

template <typename Byte>
[[nodiscard]] PlaneShape ShapeOf(const OrderedPlane<Byte>& plane) {
  return {plane.view.tokens, plane.view.heads, plane.view.dim};
}

}  // namespace kvserve
