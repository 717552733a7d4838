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
  std::size_t piece = kNoPiece;
  std::size_t first_plane = 0;
  std::size_t planes = 1;
  std::uint32_t first_row = 0;  // symbol rows of a plane that is cut
  std::uint32_t rows = 0;
  bool cut = false;
  std::size_t symbols = 0;
};

// One item per piece, and one for every plane between them that has no symbols. kInternal unless
// the pieces cover every symbol once, in coding order.
[[nodiscard]] Status ItemsOfPieces(std::span<const SymbolPiece> pieces,
                                   std::span<const SymbolPlane> planes,
                                   std::vector<DecodeItem>& items);

// One item per plane.
void ItemsOfPlanes(std::span<const SymbolPlane> planes, std::vector<DecodeItem>& items);

}  // namespace kvserve
