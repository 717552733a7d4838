// Frequency tables for coding in which every symbol has a table of its own, laid out for the coder:
// 60 tables over 255 symbols and an escape, shared by all planes. Slots lie in intervals, in
// ascending order of symbols.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/rans/rans_table.h"
#include "kvserve/error.h"

namespace kvserve {

inline constexpr std::size_t kContextTables = 60;
inline constexpr std::uint8_t kContextEscape = 255;  // in the place of a symbol
inline constexpr unsigned kContextLengthBits = 10;   // code lengths count 1/1024 bit

// Set in the code length of a symbol that its table lacks.
inline constexpr std::uint16_t kContextEscaped = 0x8000;

// 370 KB; the coder touches mostly the few symbols that are frequent.
struct ContextTables {
  // [table][symbol] frequency, start << 16; the last of a table is the escape's.
  alignas(64) std::array<std::uint32_t, kContextTables * 256> intervals;
  // [table][symbol] code length in 1/1024 bit, the escape's and 8 bits with kContextEscaped.
  // Vectors of 32 bits are read from it at any place, and so from `symbols`.
  alignas(64) std::array<std::uint16_t, kContextTables * 256 + 1> lengths;
  alignas(64) std::array<std::uint8_t, kContextTables * kRansTotal + 3> symbols;  // [table][slot]
};

// kCorruptData unless every table sums to kRansTotal and has an escape but not only that.
[[nodiscard]] Status FillContextTables(std::span<const RansTable, kContextTables> frequencies,
                                       ContextTables& tables);

}  // namespace kvserve
