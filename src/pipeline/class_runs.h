// How the symbols of a plane lie by class: for the high heads, then the low ones, the kept tokens
// class by class.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/arena.h"
#include "kernels/quantize/classed_plane.h"
#include "pipeline/stage.h"

namespace kvserve {

// Levels of the high and the low heads of a plane; both alike where its heads have no classes.
using HeadLevels = std::array<std::uint32_t, 2>;

// Sets runs, or the alphabet where one run holds all symbols, from the plane's classes.
void LayRuns(const HeadLevels& levels, SymbolPlane& plane);

struct ClassRuns {
  std::span<const std::uint32_t> kept;  // rows of symbols that are not dropped
  std::span<const ClassedRun> runs;
};
// The same runs with their tokens and heads, in the arena.
[[nodiscard]] ClassRuns ListRuns(const HeadLevels& levels, const SymbolPlane& plane,
                                 std::uint32_t heads, Arena& arena);

}  // namespace kvserve
