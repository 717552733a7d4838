// What coder loops with AVX2 have in common: vectors of 8 states, and words that are moved to and
// from the lanes that want them by permutations looked up by mask.
#pragma once

#include "kernels/rans/rans_x86.h"

#if KVSERVE_RANS_X86

#include <immintrin.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvserve::avx2 {

inline constexpr std::size_t kLanes = 8;

// [mask]: for each lane of the mask its word, counted from the mask's lowest lane.
inline constexpr auto kExpand = [] {
  std::array<std::array<std::uint32_t, kLanes>, 256> table{};
  for (std::uint32_t mask = 0; mask < 256; ++mask) {
    std::uint32_t next = 0;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      table[mask][lane] = next;
      next += mask >> lane & 1U;
    }
  }
  return table;
}();

// [mask]: the lanes of the mask, moved up against the end.
inline constexpr auto kCompress = [] {
  std::array<std::array<std::uint32_t, kLanes>, 256> table{};
  for (std::uint32_t mask = 0; mask < 256; ++mask) {
    std::uint32_t at = kLanes;
    for (std::uint32_t lane = kLanes; lane-- > 0;) {
      if ((mask >> lane & 1U) != 0) table[mask][--at] = lane;
    }
  }
  return table;
}();

KVSERVE_AVX2 inline __m256i Load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
KVSERVE_AVX2 inline void Store(void* to, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), v);
}
// Lanes of b where the top bit of `choice` is set, else of a.
KVSERVE_AVX2 inline __m256i Blend(__m256i a, __m256i b, __m256i choice) {
  return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b),
                                              _mm256_castsi256_ps(choice)));
}
KVSERVE_AVX2 inline unsigned TopBits(__m256i v) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(v)));
}

KVSERVE_AVX2 inline __m256i Gather(const std::uint32_t* from, __m256i index) {
  return _mm256_i32gather_epi32(reinterpret_cast<const int*>(from), index, 4);
}

// Gives states below 2^16 the next words.
KVSERVE_AVX2 inline __m256i Refill(__m256i x, const std::byte*& words) {
  const __m256i refill = _mm256_cmpeq_epi32(_mm256_srli_epi32(x, 16), _mm256_setzero_si256());
  const unsigned mask = TopBits(refill);
  const __m256i next =
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(words)));
  words += 2 * std::popcount(mask);
  const __m256i low = _mm256_permutevar8x32_epi32(next, Load(kExpand[mask].data()));
  return Blend(x, _mm256_or_si256(_mm256_slli_epi32(x, 16), low), refill);
}

// The high halves of 32-bit products.
KVSERVE_AVX2 inline __m256i MultiplyHigh(__m256i a, __m256i b) {
  const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(a, b), 32);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
  return _mm256_blend_epi32(even, odd, 0xAA);
}

// States that are too large for their frequencies give a word, those of higher lanes at higher
// addresses.
KVSERVE_AVX2 inline __m256i Emit(__m256i x, __m256i frequency, std::uint16_t*& words) {
  const __m256i keep = _mm256_cmpgt_epi32(frequency, _mm256_srli_epi32(x, 20));
  const unsigned mask = ~TopBits(keep) & 0xFFU;
  const __m256i moved = _mm256_and_si256(
      _mm256_permutevar8x32_epi32(x, Load(kCompress[mask].data())), _mm256_set1_epi32(0xFFFF));
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(words - kLanes),
      _mm_packus_epi32(_mm256_castsi256_si128(moved), _mm256_extracti128_si256(moved, 1)));
  words -= std::popcount(mask);
  return Blend(_mm256_srli_epi32(x, 16), x, keep);
}

}  // namespace kvserve::avx2

#endif
