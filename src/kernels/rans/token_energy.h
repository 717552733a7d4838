// Energy of a token's symbols in one plane, against what their tables expect: the context by which
// the same token's symbols in later planes find their tables. Parsing depends on it, so all of it
// is in integers.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace kvserve {

// 256 log2(value) of a value that is at least 1: whole octaves, and a table of the next 8 bits.
[[nodiscard]] std::int32_t Log2In256ths(std::uint64_t value);

// Of the sum over a row's symbols of the mean |q| of their tables, in 1/256.
[[nodiscard]] inline std::int32_t ExpectedLevel(std::uint64_t mean_sizes) {
  return Log2In256ths(2 * mean_sizes + 256);
}
// Of the sum of |q| of a row, in 1/256 octave: log2 (2 sum + 1) - log2 (2 expected + 1).
[[nodiscard]] inline std::int32_t TokenEnergy(std::uint64_t sizes, std::int32_t expected_level) {
  return Log2In256ths(256 * (2 * sizes + 1)) - expected_level;
}

// The shift of a row's table indices (quarter octaves) by the energies of the same token in up to
// three earlier planes, 0 for one that is not there. weights[0] is in 1/256 octave, the others are
// factors in 1/256. Rounded to the nearest, halves up, and limited to -60..60.
[[nodiscard]] std::int32_t EnergyShift(std::span<const std::int16_t, 4> weights,
                                       std::span<const std::int32_t, 3> energies);

}  // namespace kvserve
