#include "pipeline/encode_items.h"

#include <algorithm>

namespace kvserve {

void OrderEncoding(std::span<const SymbolPiece> pieces, std::size_t planes, unsigned threads,
                   std::vector<EncodeItem>& items) {
  items.clear();
  std::size_t plane = 0;
  std::size_t coded = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::size_t end = std::min(pieces[i].first_plane + pieces[i].planes, planes);
    while (plane < end) items.push_back({EncodeItem::Step::kPlane, plane++});
    if (i + 1 >= threads) items.push_back({EncodeItem::Step::kPiece, coded++});
  }
  while (plane < planes) items.push_back({EncodeItem::Step::kPlane, plane++});
  while (coded < pieces.size()) items.push_back({EncodeItem::Step::kPiece, coded++});
}

}  // namespace kvserve
