#include <algorithm>
#include <cstdlib>

#include "kernels/rans/context_rows.h"
#include "kernels/rans/context_tables.h"

namespace kvserve {

void ContextIndicesRef(std::span<const std::int8_t> columns, std::int32_t shift,
                       std::span<std::uint8_t> indices) {
  constexpr std::int32_t kLast = kContextTables - 1;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    indices[c] = static_cast<std::uint8_t>(std::clamp(columns[c] + shift, 0, kLast));
  }
}

std::uint64_t SumSizesRef(std::span<const std::uint8_t> symbols) {
  std::uint64_t sum = 0;
  for (const std::uint8_t symbol : symbols) {
    sum += static_cast<std::uint64_t>(std::abs(static_cast<int>(symbol) - 127));
  }
  return sum;
}

bool AllBelowRef(std::span<const std::uint8_t> symbols, std::uint32_t alphabet) {
  return std::all_of(symbols.begin(), symbols.end(),
                     [&](std::uint8_t symbol) { return symbol < alphabet; });
}

}  // namespace kvserve
