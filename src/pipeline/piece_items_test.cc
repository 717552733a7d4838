#include "pipeline/piece_items.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

namespace kvserve {
namespace {

std::vector<SymbolPlane> Planes(std::initializer_list<std::uint32_t> tokens) {
  std::vector<SymbolPlane> planes;
  for (const std::uint32_t count : tokens) {
    SymbolPlane plane;
    plane.tokens = count;
    plane.columns = 10;
    planes.push_back(plane);
  }
  return planes;
}

// Every row of every plane is finished once, behind the item that reads its piece.
void ExpectAllFinishedOnce(const std::vector<SymbolPlane>& planes,
                           const std::vector<DecodeItem>& items) {
  std::set<std::pair<std::size_t, std::uint32_t>> finished;
  std::set<std::size_t> read;
  std::map<std::size_t, std::size_t> taken;  // [piece] symbols of it
  for (const DecodeItem& item : items) {
    if (item.step != DecodeItem::Step::kFinish && item.piece != DecodeItem::kNoPiece) {
      EXPECT_TRUE(read.insert(item.piece).second);
    }
    if (item.step == DecodeItem::Step::kRead) continue;
    if (item.step == DecodeItem::Step::kFinish) {
      EXPECT_EQ(read.count(item.piece), 1U);
      EXPECT_EQ(item.first_symbol, taken[item.piece]);
      taken[item.piece] += item.symbols;
    }
    for (std::size_t p = item.first_plane; p < item.first_plane + item.planes; ++p) {
      const std::uint32_t rows = item.cut ? item.rows : planes[p].tokens;
      for (std::uint32_t row = 0; row < rows; ++row) {
        EXPECT_TRUE(finished.emplace(p, item.first_row + row).second) << p << ' ' << row;
      }
    }
  }
  std::size_t rows = 0;
  for (const SymbolPlane& plane : planes) rows += plane.tokens;
  EXPECT_EQ(finished.size(), rows);
}

TEST(PieceItems, DividedPiecesFinishEveryRowOnce) {
  const auto planes = Planes({4, 0, 7, 9, 0, 3, 3, 2});
  const std::vector<SymbolPiece> pieces = {
      {0, 3, 0, 0}, {3, 1, 0, 5}, {3, 1, 5, 4}, {5, 1, 0, 0}, {6, 2, 0, 0}};
  for (const unsigned threads : {2U, 3U, 16U}) {
    std::vector<DecodeItem> items;
    ASSERT_TRUE(ItemsOfPieces(pieces, planes, items));
    ExpectAllFinishedOnce(planes, items);
    DivideLastPieces(threads, planes, items);
    ExpectAllFinishedOnce(planes, items);
  }
}

TEST(PieceItems, OnlyTheLastPiecesAreDivided) {
  const auto planes = Planes({1, 1, 1, 1, 1, 1});
  std::vector<SymbolPiece> pieces;
  for (std::size_t p = 0; p < planes.size(); ++p) pieces.push_back({p, 1, 0, 0});
  std::vector<DecodeItem> items;
  ASSERT_TRUE(ItemsOfPieces(pieces, planes, items));
  DivideLastPieces(2, planes, items);
  ASSERT_EQ(items.size(), 9U);
  EXPECT_EQ(items[2].step, DecodeItem::Step::kAll);
  EXPECT_EQ(items[3].step, DecodeItem::Step::kRead);
  EXPECT_EQ(items[6].step, DecodeItem::Step::kFinish);
}

}  // namespace
}  // namespace kvserve
