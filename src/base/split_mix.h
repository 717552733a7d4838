// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): any
// seed is a good one, and the numbers are the same with every standard library.
#pragma once

#include <cstdint>

namespace kvserve {

inline constexpr std::uint64_t kSplitMixStep = 0x9E3779B97F4A7C15U;

// Its output function: a bijection that spreads every bit.
[[nodiscard]] constexpr std::uint64_t MixBits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() { return MixBits(state_ += kSplitMixStep); }

 private:
  std::uint64_t state_;
};

}  // namespace kvserve
