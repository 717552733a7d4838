// Whole groups of 32 lanes with AVX-512: two vectors of 16 states, the same words in the same order
// as the scalar coder. Called only where the instruction set "avx512" is in force.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/rans/rans.h"

namespace kvserve {

// Whether the build has them and "avx512" is in force, for 2^lanes_log2 lanes.
[[nodiscard]] bool UseRansAvx512(unsigned lanes_log2);

// As the decoder's loop over groups: `slots` holds symbol, frequency << 8 and (slot - start) << 20.
// Advances `in` over the words it takes and returns the number of symbols decoded.
[[nodiscard]] std::size_t RansDecodeAvx512(const std::uint32_t* slots, std::uint32_t* states,
                                           std::span<std::uint8_t> symbols,
                                           std::span<const std::byte>& in);

// Codes whole groups from the end; symbols.size() is a multiple of 32. Words are written below
// `words`; returns the lowest one.
[[nodiscard]] std::uint16_t* RansEncodeAvx512(std::span<const std::uint8_t> symbols,
                                              const RansTable& table, std::uint32_t* states,
                                              std::uint16_t* words);

}  // namespace kvserve
