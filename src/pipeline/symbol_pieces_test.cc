#include "pipeline/symbol_pieces.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace kvserve {
namespace {

std::vector<SymbolPlane> Planes(
    std::initializer_list<std::pair<std::uint32_t, std::uint32_t>> shapes) {
  std::vector<SymbolPlane> planes;
  for (const auto& [tokens, columns] : shapes) {
    SymbolPlane plane;
    plane.tokens = tokens;
    plane.columns = columns;
    planes.push_back(plane);
  }
  return planes;
}

void ExpectCovered(const std::vector<SymbolPlane>& planes) {
  Arena arena;
  std::size_t plane = 0;
  std::size_t symbol = 0;
  const auto skip_done = [&] {
    while (plane < planes.size() && symbol == planes[plane].count()) ++plane, symbol = 0;
  };
  for (const SymbolPiece& piece : CutIntoPieces(planes, arena)) {
    std::size_t symbols = 0;
    std::size_t widest = 0;
    ForEachSegment<SymbolPlane>(piece, planes, [&](std::size_t p, std::size_t at, std::size_t n) {
      skip_done();
      symbols += n;
      widest = std::max<std::size_t>(widest, planes[p].columns);
      if (n == 0) return;
      ASSERT_EQ(p, plane);
      ASSERT_EQ(at, symbol);
      symbol += n;
    });
    EXPECT_LE(symbols, piece.rows > 0 ? kPieceSymbols + widest : kPieceSymbols);
  }
  skip_done();
  EXPECT_EQ(plane, planes.size());
}

TEST(SymbolPieces, PlanesAreMergedUpToTheLimit) {
  Arena arena;
  const auto planes = Planes({{128, 192}, {128, 192}, {256, 1900}, {0, 192}, {256, 192}});
  const auto pieces = CutIntoPieces(planes, arena);
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[0].planes, 2U);
  EXPECT_EQ(pieces[1].planes, 2U);
  EXPECT_EQ(pieces[2].planes, 1U);
  EXPECT_EQ(pieces[1].rows, 0U);
}

TEST(SymbolPieces, LargePlanesAreCutByRows) {
  Arena arena;
  const auto planes = Planes({{16, 16}, {2049, 1024}, {512, 1024}});
  const auto pieces = CutIntoPieces(planes, arena);
  ASSERT_EQ(pieces.size(), 7U);
  EXPECT_EQ(pieces[1].first_row, 0U);
  EXPECT_EQ(pieces[1].rows, 410U);
  EXPECT_EQ(pieces[5].first_row, 1640U);
  EXPECT_EQ(pieces[5].rows, 409U);
  EXPECT_EQ(pieces[6].first_plane, 2U);
}

TEST(SymbolPieces, EverySymbolIsCoveredOnceInOrder) {
  ExpectCovered({});
  ExpectCovered(Planes({{0, 0}}));
  ExpectCovered(Planes({{1, 1 << 20}, {3, 1 << 18}, {0, 5}}));
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<SymbolPlane> planes(random() % 20);
    for (auto& plane : planes) {
      plane.tokens = random() % 3 == 0 ? random() % 4 : random() % 3000;
      plane.columns = random() % 3 == 0 ? random() % 9 : random() % 2000;
    }
    ExpectCovered(planes);
  }
}

}  // namespace
}  // namespace kvserve
