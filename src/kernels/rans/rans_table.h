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

// Frequency of each symbol. They sum to kRansTotal, each below it: at least two symbols occur.
using RansTable = std::array<std::uint16_t, 256>;

// Whether it is one, with frequencies of symbols below `alphabet` only.
[[nodiscard]] bool IsRansTable(const RansTable& table, std::uint32_t alphabet);

// The table nearest to `counts`, [symbol] up to 256, of which at least two are not zero; every
// symbol that occurs gets a frequency. Integer arithmetic, so the same everywhere.
[[nodiscard]] RansTable NormaliseCounts(std::span<const std::uint64_t> counts);

// Code length of data with these counts, [symbol], under `table`, in 1/65536 bit; UINT64_MAX when a
// symbol occurs that the table lacks.
[[nodiscard]] std::uint64_t CodeLength(std::span<const std::uint64_t> counts,
                                       const RansTable& table);

// docs/FORMAT_STAGES.md has the bytes.
void WriteRansTable(const RansTable& table, ByteWriter& out);
// How many bytes that takes.
[[nodiscard]] std::size_t RansTableBytes(const RansTable& table);
// kCorruptData unless frequencies sum exactly and lie in symbols below `alphabet`.
[[nodiscard]] Result<RansTable> ReadRansTable(std::uint32_t alphabet, ByteReader& in);

}  // namespace kvserve
