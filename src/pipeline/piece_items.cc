#include "pipeline/piece_items.h"

#include <algorithm>

#include "base/try.h"

namespace kvserve {
namespace {

DecodeItem PlaneItem(std::size_t plane, const SymbolPlane& symbols) {
  DecodeItem item;
  item.first_plane = plane;
  item.rows = symbols.tokens;
  item.symbols = symbols.count();
  return item;
}

// Where the next piece has to begin.
struct Cursor {
  std::size_t plane = 0;
  std::uint32_t row = 0;  // above 0 within a plane that is cut
};

Status Uncovered() {
  return MakeError(ErrorCode::kInternal, "the codec's pieces do not cover the symbols");
}

// Planes without symbols need no piece.
void SkipBare(std::size_t end, std::span<const SymbolPlane> planes, Cursor& cursor,
              std::vector<DecodeItem>& items) {
  while (cursor.row == 0 && cursor.plane < end && planes[cursor.plane].count() == 0) {
    items.push_back(PlaneItem(cursor.plane, planes[cursor.plane]));
    ++cursor.plane;
  }
}

Status AddWhole(const SymbolPiece& piece, std::span<const SymbolPlane> planes, Cursor& cursor,
                DecodeItem& item) {
  if (cursor.row != 0 || piece.first_row != 0 || piece.planes > planes.size() - cursor.plane) {
    return Uncovered();
  }
  item.planes = piece.planes;
  for (std::size_t i = 0; i < piece.planes; ++i) item.symbols += planes[cursor.plane++].count();
  return {};
}

Status AddCut(const SymbolPiece& piece, std::span<const SymbolPlane> planes, Cursor& cursor,
              DecodeItem& item) {
  const SymbolPlane& plane = planes[cursor.plane];
  if (piece.planes != 1 || piece.first_row != cursor.row ||
      piece.rows > plane.tokens - cursor.row) {
    return Uncovered();
  }
  item.first_row = piece.first_row;
  item.rows = piece.rows;
  item.cut = piece.rows < plane.tokens;
  item.symbols = std::size_t{piece.rows} * plane.columns;
  cursor.row += piece.rows;
  if (cursor.row == plane.tokens) cursor = {cursor.plane + 1, 0};
  return {};
}

}  // namespace

Status ItemsOfPieces(std::span<const SymbolPiece> pieces, std::span<const SymbolPlane> planes,
                     std::vector<DecodeItem>& items) {
  items.clear();
  Cursor cursor;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const SymbolPiece& piece = pieces[i];
    SkipBare(std::min(piece.first_plane, planes.size()), planes, cursor, items);
    if (piece.first_plane != cursor.plane || cursor.plane >= planes.size()) return Uncovered();
    DecodeItem item;
    item.piece = i;
    item.first_plane = piece.first_plane;
    KVSERVE_TRY(piece.rows == 0 ? AddWhole(piece, planes, cursor, item)
                                : AddCut(piece, planes, cursor, item));
    items.push_back(item);
  }
  SkipBare(planes.size(), planes, cursor, items);
  return cursor.plane == planes.size() ? Status() : Uncovered();
}

// Planes are work enough for all threads while one of them still reads, if as many pieces as there
// are threads are whole until all but one of these have been read.
void DivideLastPieces(unsigned threads, std::span<const SymbolPlane> planes,
                      std::vector<DecodeItem>& items) {
  const std::size_t divided = std::min<std::size_t>(items.size(), 2 * std::size_t{threads} - 1);
  const std::size_t first = items.size() - divided;
  for (std::size_t i = first; i < first + divided; ++i) {
    const DecodeItem whole = items[i];
    if (whole.piece == DecodeItem::kNoPiece) continue;
    items[i].step = DecodeItem::Step::kRead;
    std::size_t symbol = 0;
    for (std::size_t p = whole.first_plane; p < whole.first_plane + whole.planes; ++p) {
      DecodeItem finish = whole.cut ? whole : PlaneItem(p, planes[p]);
      finish.step = DecodeItem::Step::kFinish;
      finish.piece = whole.piece;
      finish.first_symbol = symbol;
      symbol += finish.symbols;
      items.push_back(finish);
    }
  }
}

void ItemsOfPlanes(std::span<const SymbolPlane> planes, std::vector<DecodeItem>& items) {
  items.clear();
  for (std::size_t p = 0; p < planes.size(); ++p) items.push_back(PlaneItem(p, planes[p]));
}

}  // namespace kvserve
