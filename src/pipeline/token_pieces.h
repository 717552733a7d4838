// How a codec whose contexts never look at other tokens cuts a frame: by tokens, over all planes,
// so that each piece can be coded apart. By the planes' shapes alone; docs/FORMAT_STAGES.md repeats
// the rule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pipeline/stage.h"

namespace kvserve {

// Symbol rows [begin, end) of one plane.
struct RowRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
};

// Whether a plane's symbols say anything.
[[nodiscard]] inline bool HasChoice(const SymbolPlane& plane) {
  return plane.alphabet > 1 && plane.count() > 0;
}

// Planes may begin at different tokens, and end at the same one. Those without a choice take no
// part.
class TokenPieces {
 public:
  explicit TokenPieces(std::span<const SymbolPlane> planes) {
    constexpr std::uint64_t kPieceSymbols = std::uint64_t{1} << 20;
    constexpr std::uint64_t kTokenStep = 16;
    std::uint64_t symbols = 0;
    for (const SymbolPlane& plane : planes) {
      if (!HasChoice(plane)) continue;
      tokens_ = std::max<std::uint64_t>(tokens_, plane.tokens);
      symbols += plane.count();
    }
    const auto divide = [](std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; };
    const std::uint64_t wanted = std::max<std::uint64_t>(1, divide(symbols, kPieceSymbols));
    piece_tokens_ =
        divide(std::max<std::uint64_t>(1, divide(tokens_, wanted)), kTokenStep) * kTokenStep;
  }

  [[nodiscard]] std::size_t pieces() const { return (tokens_ + piece_tokens_ - 1) / piece_tokens_; }
  // Of a plane with a choice.
  [[nodiscard]] RowRange Rows(std::size_t piece, const SymbolPlane& plane) const {
    const std::uint64_t first = tokens_ - plane.tokens;
    const std::uint64_t begin = piece * piece_tokens_;
    const std::uint64_t end = std::min(begin + piece_tokens_, tokens_);
    return {std::max(begin, first) - first, std::max(end, first) - first};
  }
  // visit(plane, its rows) for the planes that have symbols in the piece.
  template <typename Visit>
  void ForEachPlane(std::size_t piece, std::span<const SymbolPlane> planes,
                    const Visit& visit) const {
    for (std::size_t p = 0; p < planes.size(); ++p) {
      if (!HasChoice(planes[p])) continue;
      const RowRange rows = Rows(piece, planes[p]);
      if (rows.size() > 0) visit(p, rows);
    }
  }

 private:
  std::uint64_t tokens_ = 0;
  std::uint64_t piece_tokens_ = 1;
};

// The row of `other` that is the same token as this row of `plane`; negative: it has none.
[[nodiscard]] inline std::int64_t RowOfSameToken(const SymbolPlane& other, const SymbolPlane& plane,
                                                 std::size_t row) {
  return static_cast<std::int64_t>(row) + other.tokens - plane.tokens;
}

[[nodiscard]] inline std::span<std::uint8_t> SymbolsOf(const SymbolPlane& plane, RowRange rows) {
  return plane.symbols.subspan(rows.begin * plane.columns, rows.size() * plane.columns);
}

}  // namespace kvserve
