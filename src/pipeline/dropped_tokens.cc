#include "pipeline/dropped_tokens.h"

#include <algorithm>

namespace kvserve {

void DroppedTokens::Clear() {
  common_.clear();
  any_ = false;
  partly_ = false;
}

void DroppedTokens::Collect(TokenRange tokens, std::span<const OrderedPlane<std::byte>> planes,
                            std::span<const SymbolPlane> symbols) {
  Clear();
  common_.assign(tokens.size(), 0);
  kept_.assign(tokens.size(), 0);
  for (std::size_t p = 0; p < planes.size(); ++p) {
    const auto& classes = symbols[p].token_classes;
    const std::uint32_t first = planes[p].tokens.begin - tokens.begin;
    const std::size_t bare = planes[p].tokens.size() - classes.size();  // all without classes
    std::fill_n(kept_.begin() + first, bare, std::uint8_t{1});
    for (std::size_t row = 0; row < classes.size(); ++row) {
      (classes[row] == kDroppedToken ? common_ : kept_)[first + bare + row] = 1;
    }
  }
  for (std::size_t t = 0; t < common_.size(); ++t) {
    partly_ = partly_ || (common_[t] != 0 && kept_[t] != 0);
    if (kept_[t] != 0) common_[t] = 0;
    any_ = any_ || common_[t] != 0;
  }
}

void ZeroDropped(const SymbolPlane& symbols, RealPlane values) {
  const auto& classes = symbols.token_classes;
  const std::size_t bare = values.tokens - classes.size();
  for (std::size_t row = 0; row < classes.size(); ++row) {
    if (classes[row] != kDroppedToken) continue;
    std::fill_n(values.data + (bare + row) * values.columns(), values.columns(), 0.0F);
  }
}

}  // namespace kvserve
