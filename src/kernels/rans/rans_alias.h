// Alias tables: the 4096 slots of a frequency table as equal buckets, each shared by at most two
// symbols, so that a slot is looked up in a few entries that fit into vector registers. The offsets
// of a symbol count its slots in ascending order. docs/FORMAT_STAGES.md has the construction.
// A. J. Walker, 1977; M. D. Vose, 1991; F. Giesen, "rANS with static probability distributions",
// 2014.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/rans/rans_table.h"

namespace kvserve {

inline constexpr unsigned kMaxAliasSymbols = 32;

// How the slots of a table are laid out.
enum class RansLayout : std::uint8_t {
  kIntervals,  // each symbol's slots are one interval, in ascending order of symbols
  kAlias,      // tables of up to 32 symbols in alias buckets, larger ones as above
};

// Entry: frequency in bits 0..11, index of the symbol in 12..16, offset - slot (signed) in 17..31.
struct RansAlias {
  unsigned buckets = 16;                                // 16, or 32 with more than 16 symbols
  alignas(64) std::array<std::uint32_t, 32> divider{};  // [bucket] first slot of the alias
  alignas(64) std::array<std::uint32_t, 32> primary{};  // [bucket] entry below the divider
  alignas(64) std::array<std::uint32_t, 32> alias{};    // [bucket] entry from the divider on
  alignas(32) std::array<std::uint8_t, 32> symbols{};   // [index] ascending
};

// Whether this table's slots lie in alias buckets.
[[nodiscard]] bool UsesAlias(const RansTable& table, RansLayout layout);

// Of a table with 2..32 symbols.
[[nodiscard]] RansAlias BuildAlias(const RansTable& table);

// The slots of a symbol in order of offsets, in runs: with p = sum of the frequencies of lower
// symbols + offset, the slot is p + shift[i] mod 2^16 for the last i with begin[i] <= p. Unused
// runs begin at 65535.
struct RansAliasRuns {
  static constexpr std::size_t kMaxRuns = 64;
  alignas(64) std::array<std::uint16_t, kMaxRuns> begin{};
  alignas(64) std::array<std::uint16_t, kMaxRuns> shift{};
  std::size_t count = 0;  // at most 32 with 16 buckets
};
[[nodiscard]] RansAliasRuns RunsOf(const RansAlias& alias);

}  // namespace kvserve
