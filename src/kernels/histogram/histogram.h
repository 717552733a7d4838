// How often each symbol occurs.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace kvserve {

using SymbolCounts = std::array<std::uint64_t, 256>;

// Counts of `symbols`, any order. `alphabet`, 1..256, is a hint: symbols are expected below it, and
// up to 32 are counted with vectors. Exact for any symbols, the same on every instruction set.
[[nodiscard]] SymbolCounts CountSymbols(std::span<const std::uint8_t> symbols,
                                        std::uint32_t alphabet = 256);

// Oracle.
[[nodiscard]] SymbolCounts CountSymbolsRef(std::span<const std::uint8_t> symbols);

}  // namespace kvserve
