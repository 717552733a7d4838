#include "pipeline/symbol_pieces.h"

#include <algorithm>

#include "base/try.h"
#include "base/workers.h"

namespace kvserve {
namespace {

template <typename Visit>
void CutPlane(std::size_t index, const SymbolPlane& plane, const Visit& visit) {
  const std::size_t wanted = (plane.count() + kPieceSymbols - 1) / kPieceSymbols;
  const auto rows = static_cast<std::uint32_t>((plane.tokens + wanted - 1) / wanted);
  for (std::uint32_t row = 0; row < plane.tokens; row += rows) {
    visit(SymbolPiece{index, 1, row, std::min(rows, plane.tokens - row)});
  }
}

template <typename Visit>
void ForEachPiece(std::span<const SymbolPlane> planes, const Visit& visit) {
  SymbolPiece open{0, 0, 0, 0};
  std::size_t symbols = 0;
  const auto close = [&](std::size_t next_plane) {
    if (open.planes > 0) visit(open);
    open = {next_plane, 0, 0, 0};
    symbols = 0;
  };
  for (std::size_t p = 0; p < planes.size(); ++p) {
    const std::size_t count = planes[p].count();
    if (symbols + count > kPieceSymbols) close(p);
    if (count > kPieceSymbols) {
      CutPlane(p, planes[p], visit);
      open.first_plane = p + 1;
      continue;
    }
    ++open.planes;
    symbols += count;
  }
  close(planes.size());
}

}  // namespace

std::size_t CountPieces(std::span<const SymbolPlane> planes) {
  std::size_t pieces = 0;
  ForEachPiece(planes, [&](const SymbolPiece& /*piece*/) { ++pieces; });
  return pieces;
}

std::span<const SymbolPiece> CutIntoPieces(std::span<const SymbolPlane> planes, Arena& arena) {
  const auto pieces = arena.Take<SymbolPiece>(CountPieces(planes));
  std::size_t next = 0;
  ForEachPiece(planes, [&](const SymbolPiece& piece) { pieces[next++] = piece; });
  return pieces;
}

Status WriteAll(const FrameContext& frame, std::size_t planes, SymbolWriter& writer) {
  KVSERVE_TRY(frame.workers->Run(
      planes, [&](std::size_t p, Arena& /*scratch*/) { return writer.Count(p); }));
  const std::size_t pieces = writer.pieces().size();
  for (std::size_t i = 0; i < pieces; ++i) writer.Decide(i);
  KVSERVE_TRY(frame.workers->Run(pieces, [&](std::size_t i, Arena& scratch) {
    writer.Code(i, scratch);
    return Status();
  }));
  writer.Finish();
  return {};
}

}  // namespace kvserve
