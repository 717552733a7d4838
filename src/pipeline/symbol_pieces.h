// How a codec that can read parts of a frame cuts its symbols: by the planes' shapes alone, so that
// encoder and decoder agree and the bytes do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <span>

#include "base/arena.h"
#include "pipeline/stage.h"

namespace kvserve {

inline constexpr std::size_t kPieceSymbols = std::size_t{1} << 19;

// Consecutive planes are merged while they have at most kPieceSymbols together. A plane of more is
// cut by rows into the fewest pieces of about that size: ceil(tokens / n) rows each, the last one
// what is left, n = ceil(symbols / kPieceSymbols). Planes without symbols cost nothing and belong
// to a neighbour. No pieces when there are no planes. docs/FORMAT_STAGES.md repeats this rule.
[[nodiscard]] std::span<const SymbolPiece> CutIntoPieces(std::span<const SymbolPlane> planes,
                                                         Arena& arena);
[[nodiscard]] std::size_t CountPieces(std::span<const SymbolPlane> planes);

// What Codec::Encode does for a codec that encodes in steps.
[[nodiscard]] Status WriteAll(const FrameContext& frame, std::size_t planes, SymbolWriter& writer);

// Calls visit(plane, first symbol of it, symbols) for each run of symbols of a piece; Plane has
// tokens and columns.
template <typename Plane, typename Visit>
void ForEachSegment(const SymbolPiece& piece, std::span<const Plane> planes, const Visit& visit) {
  for (std::size_t p = piece.first_plane; p < piece.first_plane + piece.planes; ++p) {
    const std::size_t columns = planes[p].columns;
    const std::size_t rows = piece.rows > 0 ? piece.rows : planes[p].tokens;
    visit(p, piece.first_row * columns, rows * columns);
  }
}

}  // namespace kvserve
