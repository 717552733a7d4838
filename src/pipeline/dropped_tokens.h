// Which tokens a decoded frame leaves out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/plane_order.h"
#include "pipeline/stage.h"

namespace kvserve {

class DroppedTokens {
 public:
  // Counts over all planes of a frame whose classes are set; memory is kept.
  void Collect(TokenRange tokens, std::span<const OrderedPlane<std::byte>> planes,
               std::span<const SymbolPlane> symbols);
  void Clear();

  // [token] of the frame: 1 where every plane that holds the token has dropped it.
  [[nodiscard]] std::span<const std::uint8_t> common() const { return common_; }
  [[nodiscard]] bool any() const { return any_; }
  // Some planes have dropped a token that others hold.
  [[nodiscard]] bool partly() const { return partly_; }

 private:
  std::vector<std::uint8_t> common_;
  std::vector<std::uint8_t> kept_;  // [token] by some plane
  bool any_ = false;
  bool partly_ = false;
};

// Zeroes the rows of dropped tokens. A plane's leading rows without symbols have no class.
void ZeroDropped(const SymbolPlane& symbols, RealPlane values);

}  // namespace kvserve
