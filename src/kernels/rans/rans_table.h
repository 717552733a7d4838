// Frequency tables of the entropy coder: 12-bit, counted from the data, sent in about 10 bits per
// occurring symbol.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/byte_io.h"
#include "kvserve/error.h"

namespace kvserve {

inline constexpr unsigned kRansBits = 12;
inline constexpr std::uint32_t kRansTotal = 1U << kRansBits;

using SymbolCounts = std::array<std::uint64_t, 256>;

// Frequencies sum to kRansTotal, each below it: at least two symbols occur.
struct RansTable {
  std::array<std::uint16_t, 256> frequency{};
  friend bool operator==(const RansTable&, const RansTable&) = default;
};

[[nodiscard]] SymbolCounts CountSymbols(std::span<const std::uint8_t> symbols);

// The table nearest to `counts`, of which at least two are not zero; every symbol that occurs gets
// a frequency. Integer arithmetic, so the same everywhere.
[[nodiscard]] RansTable NormaliseCounts(const SymbolCounts& counts);

// Code length of data with these counts under `table`, in 1/65536 bit; UINT64_MAX when a symbol
// occurs that the table lacks.
[[nodiscard]] std::uint64_t CodeLength(const SymbolCounts& counts, const RansTable& table);

// docs/FORMAT_STAGES.md has the bytes.
void WriteRansTable(const RansTable& table, ByteWriter& out);
// kCorruptData unless frequencies sum exactly and lie in symbols below `alphabet`.
[[nodiscard]] Result<RansTable> ReadRansTable(std::uint32_t alphabet, ByteReader& in);

}  // namespace kvserve
