// What the coder's loops for one instruction set get and give: they code one part, all of them the
// same words in the same order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/rans/rans.h"

namespace kvserve {

inline constexpr std::size_t kMaxRansLanes = std::size_t{1} << kMaxRansLanesLog2;

// One of the two, for the table in hand. Not initialised: 16 KB that few tables use.
struct RansDecoderTable {
  bool use_alias;
  RansAlias alias;
  // Of intervals, per slot: frequency in bits 0..11, symbol in 12..19, slot - start in 20..31.
  alignas(64) std::array<std::uint32_t, kRansTotal> slots;
};

struct RansEncoderTable {
  bool use_alias;
  bool wide;                                // 32 buckets
  std::array<std::uint32_t, 256> interval;  // [symbol] frequency, start << 16
  RansAliasRuns runs;                       // alias only
  // Alias only: slot at start + offset. Vectors of 32 bits are read from it at any place.
  std::array<std::uint16_t, kRansTotal + 2> slots;
};

// Words that are still to be read. A group of lanes starts only while next <= stop; from there it
// may read 2 bytes per lane and kRansReadAhead more.
struct RansWords {
  const std::byte* next = nullptr;
  const std::byte* stop = nullptr;
};
inline constexpr std::size_t kRansReadAhead = 32;
// Encoders may write that many u16 below the lowest word.
inline constexpr std::size_t kRansWriteAhead = 16;

struct RansKernels {
  // From lane 0 on; returns how many symbols were decoded: all, or whole groups until words.stop.
  std::size_t (*decode)(const RansDecoderTable& table, unsigned lanes_log2, std::uint32_t* states,
                        std::span<std::uint8_t> symbols, RansWords& words);
  // From the last symbol to the first, words below `words`; returns the lowest one.
  std::uint16_t* (*encode)(const RansEncoderTable& table, unsigned lanes_log2,
                           std::uint32_t* states, std::span<const std::uint8_t> symbols,
                           std::uint16_t* words);
};

[[nodiscard]] const RansKernels& PortableRansKernels();
// With vectors where lanes fill them, otherwise as above. Null where the build lacks them.
[[nodiscard]] const RansKernels* Avx2RansKernels();
[[nodiscard]] const RansKernels* Avx512RansKernels();

// Those of the instruction set in force.
[[nodiscard]] const RansKernels& ActiveRansKernels();

}  // namespace kvserve
