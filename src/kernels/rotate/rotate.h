// Rotary position embedding: turning the channel pairs of keys by position * theta^(-2i/dim), and
// back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvserve/geometry.h"

namespace kvserve {

// How many elements the frequencies of a head of `dim` channels have: one per pair, padded for
// vectors.
[[nodiscard]] std::size_t RopePairs(std::uint32_t dim);

// Fills `turns` [RopePairs(dim)]: how far one position turns pair i, theta^(-2i/dim) / (2 pi) of a
// circle, as a fraction of 2^64; padding is 0. `theta` is positive and finite, `dim` even. Computed
// from additions, multiplications and divisions of doubles alone, each rounded on its own, so that
// it is bit-identical everywhere (libraries' pow, sin and cos are not); docs/FORMAT_STAGES.md has
// the series. Accurate to 2^-44 of the frequency and 2^-64 of a circle.
void RopeTurns(float theta, std::uint32_t dim, std::span<std::uint64_t> turns);

struct RopeRows {
  RopeStyle style = RopeStyle::kHalves;  // not kNone
  std::uint32_t dim = 0;                 // even
  std::uint32_t heads = 0;
  std::uint32_t first_position = 0;      // of the first row; one more for each row after it
  std::span<const std::uint64_t> turns;  // [RopePairs(dim)]
};

// In place on `values` [row, head, dim], whole rows. Undo turns pairs back by their positions:
// (a, b) becomes (a c + b s, b c - a s), Apply gives (a c - b s, b c + a s), with c and s the
// cosine and sine of position * turns, rounded to float32. Bit-identical on every instruction set:
// angles are integers, each operation is rounded on its own. Apply after Undo restores a pair to
// 2^-21 of its length; a pair's length changes by 2^-22 of it at the most, so that only values
// beyond 2^127 can overflow. Allocates nothing.
void UndoRope(std::span<float> values, const RopeRows& rope);
void ApplyRope(std::span<float> values, const RopeRows& rope);

// Oracles.
void UndoRopeRef(std::span<float> values, const RopeRows& rope);
void ApplyRopeRef(std::span<float> values, const RopeRows& rope);

}  // namespace kvserve
