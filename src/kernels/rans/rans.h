// Interleaved range asymmetric numeral systems (rANS) coder: 12-bit frequencies, 32-bit states in
// [2^16, 2^32), 16-bit words. Symbol i of a part belongs to lane i mod lanes, so that a decoder can
// run all lanes as one vector; the words of all lanes are one sequence in decoding order.
// J. Duda, "Asymmetric numeral systems", 2013; F. Giesen, "Interleaved entropy coders", 2014.
#pragma once

#include <cstdint>
#include <span>

#include "base/byte_io.h"
#include "kernels/rans/rans_table.h"
#include "kvserve/error.h"

namespace kvserve {

inline constexpr unsigned kMaxRansLanesLog2 = 5;
inline constexpr std::uint32_t kRansLow = 1U << 16;  // smallest state, and the first of an encoder

// Symbols that share a table. Parts lie one after the other in the stream; each starts at lane 0.
template <typename Symbol>
struct BasicRansPart {
  std::span<Symbol> symbols;
  const RansTable* table = nullptr;
};
using RansPart = BasicRansPart<const std::uint8_t>;
using MutableRansPart = BasicRansPart<std::uint8_t>;

// Appends the decoder's first states (u32 per lane), then the words (u16). Every symbol has a
// frequency in its table. At most 4 bytes per lane plus the code length and 0.1 bit per symbol.
void RansEncode(std::span<const RansPart> parts, unsigned lanes_log2, ByteWriter& out);

// Fills the symbols of `parts` from all of `in`. kCorruptData when it is too short or long, or its
// states do not end where an encoder starts.
[[nodiscard]] Status RansDecode(std::span<const std::byte> in, unsigned lanes_log2,
                                std::span<const MutableRansPart> parts);

// Oracles.
void RansEncodeRef(std::span<const RansPart> parts, unsigned lanes_log2, ByteWriter& out);
[[nodiscard]] Status RansDecodeRef(std::span<const std::byte> in, unsigned lanes_log2,
                                   std::span<const MutableRansPart> parts);

}  // namespace kvserve
