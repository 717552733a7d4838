// Interleaved range asymmetric numeral systems (rANS) coder: 12-bit frequencies, 32-bit states in
// [2^16, 2^32), 16-bit words. Symbol i of a part belongs to lane i mod lanes, so that a decoder can
// run all lanes as vectors; the words of all lanes are one sequence in decoding order.
// J. Duda, "Asymmetric numeral systems", 2013; F. Giesen, "Interleaved entropy coders", 2014.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/byte_io.h"
#include "kernels/rans/rans_alias.h"
#include "kernels/rans/rans_table.h"
#include "kvserve/error.h"

namespace kvserve {

inline constexpr unsigned kMaxRansLanesLog2 = 7;
inline constexpr std::uint32_t kRansLow = 1U << 16;  // smallest state, and the first of an encoder

// Symbols that share a table. Parts lie one after the other in the stream; each starts at lane 0.
template <typename Symbol>
struct BasicRansPart {
  std::span<Symbol> symbols;
  const RansTable* table = nullptr;
};
using RansPart = BasicRansPart<const std::uint8_t>;
using MutableRansPart = BasicRansPart<std::uint8_t>;

// How many u16 of scratch RansEncode needs for this many symbols with a code length, in 1/65536
// bit: at most 0.1 bit per symbol beyond it, and the states.
[[nodiscard]] std::size_t RansScratchWords(std::uint64_t code_length, std::uint64_t symbols,
                                           unsigned lanes_log2);

// Returns the decoder's first states (u32 per lane), then the words (u16), as a part of `scratch`.
// Every symbol has a frequency in its table.
[[nodiscard]] std::span<const std::byte> RansEncode(std::span<const RansPart> parts,
                                                    unsigned lanes_log2, RansLayout layout,
                                                    std::span<std::uint16_t> scratch);

// Fills the symbols of `parts` from all of `in`. kCorruptData when it is too short or long, or its
// states do not end where an encoder starts.
[[nodiscard]] Status RansDecode(std::span<const std::byte> in, unsigned lanes_log2,
                                RansLayout layout, std::span<const MutableRansPart> parts);

// Oracles.
void RansEncodeRef(std::span<const RansPart> parts, unsigned lanes_log2, RansLayout layout,
                   ByteWriter& out);
[[nodiscard]] Status RansDecodeRef(std::span<const std::byte> in, unsigned lanes_log2,
                                   RansLayout layout, std::span<const MutableRansPart> parts);

}  // namespace kvserve
