// How the decoding of a frame divides into pieces of work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvserve/error.h"
#include "pipeline/stage.h"

namespace kvserve {

// Work of one thread: a piece of the codec's stream, or planes that have no symbols at all.
struct DecodeItem {
  static constexpr std::size_t kNoPiece = static_cast<std::size_t>(-1);
  // The symbols of a piece and their way to the end of the chain, or one of both alone.
  enum class Step : std::uint8_t { kAll, kRead, kFinish };
  Step step = Step::kAll;
  std::size_t piece = kNoPiece;
  std::size_t first_plane = 0;
  std::size_t planes = 1;
  std::uint32_t first_row = 0;  // symbol rows of a plane that is cut
  std::uint32_t rows = 0;
  bool cut = false;
  std::size_t first_symbol = 0;  // of the piece
  std::size_t symbols = 0;
};

// One item per piece, and one for every plane between them that has no symbols. kInternal unless
// the pieces cover every symbol once, in coding order.
[[nodiscard]] Status ItemsOfPieces(std::span<const SymbolPiece> pieces,
                                   std::span<const SymbolPlane> planes,
                                   std::vector<DecodeItem>& items);

// Divides the last pieces, so that threads which find none left help with the planes of those that
// are being read: items that only read these pieces, and behind them an item per plane. `threads`
// is at least 2. A thread that takes a plane's item finds its piece taken before.
void DivideLastPieces(unsigned threads, std::span<const SymbolPlane> planes,
                      std::vector<DecodeItem>& items);

// One item per plane.
void ItemsOfPlanes(std::span<const SymbolPlane> planes, std::vector<DecodeItem>& items);

}  // namespace kvserve
