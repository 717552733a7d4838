#include "kernels/histogram/histogram.h"

namespace kvserve {

SymbolCounts CountSymbolsRef(std::span<const std::uint8_t> symbols) {
  SymbolCounts counts{};
  for (const std::uint8_t symbol : symbols) ++counts[symbol];
  return counts;
}

}  // namespace kvserve
