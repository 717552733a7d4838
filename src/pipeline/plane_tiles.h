// One plane through the stages that work by rows, in tiles that stay in the cache from the first
// stage to the last.
#pragma once

#include <cstdint>
#include <span>

#include "pipeline/chain.h"
#include "pipeline/frame_plan.h"
#include "pipeline/stage_clock.h"

namespace kvserve {

// All stages up to the codec offer rows() and none asks for feedback.
[[nodiscard]] bool WorksByRows(const Chain& chain);

// Symbols and side bytes of one plane. Scratch memory: a float per value of the plane. False when a
// value is not finite: the whole-plane methods of the stages then say which.
[[nodiscard]] Result<bool> EncodeByRows(const Chain& chain, const PlaneContext& context,
                                        const ConstPlaneView& view, const SymbolPlane& symbols,
                                        ByteWriter& side, StageClock& clock);

// Some rows of a plane: those of symbol rows [first_row, first_row + rows), of `symbols`, and with
// the first of them the leading rows that have no symbols. `plan` gives shape and classes of the
// whole plane, `side` all of its side bytes. Scratch memory: one tile.
struct SymbolRows {
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::span<const std::uint8_t> symbols;
};
[[nodiscard]] Status DecodeByRows(const Chain& chain, const PlaneContext& context,
                                  const SymbolPlane& plan, const SymbolRows& part,
                                  std::span<const std::byte> side, const PlaneView& out,
                                  StageClock& clock);

}  // namespace kvserve
