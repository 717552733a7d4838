#include "pipeline/encode_items.h"

#include <gtest/gtest.h>

#include <string>

namespace kvserve {
namespace {

// "p0" a plane, "c0" a piece.
std::string Order(std::span<const SymbolPiece> pieces, std::size_t planes, unsigned threads) {
  std::vector<EncodeItem> items;
  OrderEncoding(pieces, planes, threads, items);
  std::string text;
  for (const EncodeItem& item : items) {
    text += item.step == EncodeItem::Step::kPlane ? 'p' : 'c';
    text += std::to_string(item.index);
  }
  return text;
}

TEST(EncodeItems, PiecesFollowTheirPlanesAndOnePerThreadIsLast) {
  const SymbolPiece pieces[] = {{0, 2, 0, 0}, {2, 1, 0, 0}, {3, 1, 0, 0}};
  EXPECT_EQ(Order(pieces, 4, 1), "p0p1c0p2c1p3c2");
  EXPECT_EQ(Order(pieces, 4, 2), "p0p1p2c0p3c1c2");
  EXPECT_EQ(Order(pieces, 4, 8), "p0p1p2p3c0c1c2");
}

TEST(EncodeItems, PlanesThatAreCutOrInNoPieceAreThereOnce) {
  const SymbolPiece pieces[] = {{1, 1, 0, 5}, {1, 1, 5, 2}};
  EXPECT_EQ(Order(pieces, 3, 1), "p0p1c0c1p2");
  EXPECT_EQ(Order({}, 2, 2), "p0p1");
}

}  // namespace
}  // namespace kvserve
