// Any bytes as the symbols of any planes: every codec's decoder, whole and in pieces.
//
// Input: stage (see chosen_stage.h); u8 whose bit 0 runs the second way on scalar kernels; u8
// number of planes, modulo 5; per plane u8 tokens, u8 columns, u8 alphabet - 1; then the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvserve::fuzzing {

struct CodecLimits {
  std::uint32_t tokens_per_unit = 1;  // of the input's tokens
  std::size_t most_symbols = 1U << 15;
};
// Short planes, for speed, and planes of more symbols than a piece of rans.
inline constexpr CodecLimits kShortPlanes;
inline constexpr CodecLimits kLongPlanes{.tokens_per_unit = 16, .most_symbols = 600'000};

void CheckCodec(std::span<const std::uint8_t> input, const CodecLimits& limits);

}  // namespace kvserve::fuzzing
