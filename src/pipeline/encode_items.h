// How the encoding of a frame divides into pieces of work.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pipeline/stage.h"

namespace kvserve {

// Work of one thread: a plane up to its symbols, or a piece of the codec's stream.
struct EncodeItem {
  enum class Step : std::uint8_t { kPlane, kPiece };
  Step step = Step::kPlane;
  std::size_t index = 0;
};

// All planes and pieces, each piece behind the planes up to its last. For `threads` threads, so
// many pieces stand at the end, since a piece takes longer than a plane.
void OrderEncoding(std::span<const SymbolPiece> pieces, std::size_t planes, unsigned threads,
                   std::vector<EncodeItem>& items);

}  // namespace kvserve
