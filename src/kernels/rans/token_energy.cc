#include "kernels/rans/token_energy.h"

#include <algorithm>
#include <bit>

namespace kvserve {
namespace {

// round(256 log2(1 + i / 256)), by repeated squaring.
constexpr std::array<std::uint8_t, 256> kFractions = [] {
  std::array<std::uint8_t, 256> fractions{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint64_t mantissa = (std::uint64_t{256} + i) << 23;  // [2^31, 2^32)
    std::uint32_t log2 = 0;                                   // in 1/512
    for (int bit = 0; bit < 9; ++bit) {
      mantissa = mantissa * mantissa >> 31;
      const auto above = static_cast<std::uint32_t>(mantissa >> 32);
      mantissa >>= above;
      log2 = log2 << 1 | above;
    }
    fractions[i] = static_cast<std::uint8_t>((log2 + 1) >> 1);
  }
  return fractions;
}();

constexpr std::int32_t kMostShift = 60;

}  // namespace

std::int32_t Log2In256ths(std::uint64_t value) {
  const int octave = std::bit_width(value) - 1;
  const std::uint64_t behind = value << (63 - octave) << 1;  // what follows the leading bit
  return 256 * octave + kFractions[behind >> 56];
}

std::int32_t EnergyShift(std::span<const std::int16_t, 4> weights,
                         std::span<const std::int32_t, 3> energies) {
  std::int64_t sum = std::int64_t{weights[0]} * 256;  // in 1/65536 octave
  for (std::size_t i = 0; i < 3; ++i) sum += std::int64_t{weights[i + 1]} * energies[i];
  constexpr int kQuarterBits = 14;
  const std::int64_t quarters = (sum + (1 << (kQuarterBits - 1))) >> kQuarterBits;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(quarters, -kMostShift, kMostShift));
}

}  // namespace kvserve
