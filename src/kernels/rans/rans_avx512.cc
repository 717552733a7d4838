#include "kernels/rans/rans_avx512.h"

#if defined(__x86_64__) && !defined(HWY_COMPILE_ONLY_SCALAR)

#include <immintrin.h>

#include <array>
#include <cmath>
#include <limits>

#include "kernels/isa/isa.h"

// Highway lacks expand and compress of 32-bit lanes by mask in this form, hence intrinsics.
#define KVSERVE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,popcnt")))

namespace kvserve {
namespace {

constexpr std::size_t kGroup = 32;

// One step of 16 lanes; moves `words` over what they take.
KVSERVE_AVX512 inline __m512i DecodeStep(const std::uint32_t* slots, __m512i x,
                                         std::uint8_t* symbols, const std::byte*& words) {
  const __m512i slot = _mm512_and_si512(x, _mm512_set1_epi32(kRansTotal - 1));
  const __m512i entry = _mm512_i32gather_epi32(slot, slots, 4);
  const __m512i frequency = _mm512_and_si512(_mm512_srli_epi32(entry, 8), _mm512_set1_epi32(0xFFF));
  x = _mm512_add_epi32(_mm512_mullo_epi32(frequency, _mm512_srli_epi32(x, kRansBits)),
                       _mm512_srli_epi32(entry, 20));
  const __mmask16 refill = _mm512_cmplt_epu32_mask(x, _mm512_set1_epi32(kRansLow));
  const __m512i next =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)));
  const __m512i low = _mm512_maskz_expand_epi32(refill, next);
  words += 2 * _mm_popcnt_u32(refill);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(symbols), _mm512_cvtepi32_epi8(entry));
  return _mm512_mask_or_epi32(x, refill, _mm512_slli_epi32(x, 16), low);
}

// Per symbol: frequency, start << 16, and 1 / frequency rounded up.
struct EncoderTables {
  std::array<std::uint32_t, 256> interval{};
  std::array<double, 256> inverse{};
};

void FillTables(const RansTable& table, EncoderTables& tables) {
  std::uint32_t start = 0;
  for (std::size_t s = 0; s < 256; ++s) {
    const std::uint32_t frequency = table.frequency[s];
    if (frequency == 0) continue;
    tables.interval[s] = frequency | start << 16;
    // A product that is too large by up to 2^-51 of itself stays below the next integer, which is
    // at least 1 / frequency away.
    tables.inverse[s] = std::nextafter(1.0 / frequency, std::numeric_limits<double>::max());
    start += frequency;
  }
}

KVSERVE_AVX512 inline __m256i Quotients(__m256i x, __m256i symbols, const double* inverse) {
  const __m512d factor = _mm512_i32gather_pd(symbols, inverse, 8);
  return _mm512_cvttpd_epu32(_mm512_mul_pd(_mm512_cvtepu32_pd(x), factor));
}

// One step of 16 lanes; words go below `words`, those of higher lanes at higher addresses.
KVSERVE_AVX512 inline __m512i EncodeStep(const EncoderTables& tables, __m512i x,
                                         const std::uint8_t* from, std::uint16_t*& words) {
  const __m512i symbols =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m512i interval = _mm512_i32gather_epi32(symbols, tables.interval.data(), 4);
  const __m512i frequency = _mm512_and_si512(interval, _mm512_set1_epi32(0xFFFF));
  const __mmask16 emit = _mm512_cmpge_epu32_mask(x, _mm512_slli_epi32(frequency, 20));
  const auto count = static_cast<unsigned>(_mm_popcnt_u32(emit));
  words -= count;
  // A masked store of the compressed words: compress-to-memory is slow on some machines.
  _mm256_mask_storeu_epi16(words, static_cast<__mmask16>((1U << count) - 1),
                           _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(emit, x)));
  x = _mm512_mask_srli_epi32(x, emit, x, 16);
  const __m256i low =
      Quotients(_mm512_castsi512_si256(x), _mm512_castsi512_si256(symbols), tables.inverse.data());
  const __m256i high = Quotients(_mm512_extracti64x4_epi64(x, 1),
                                 _mm512_extracti64x4_epi64(symbols, 1), tables.inverse.data());
  const __m512i quotient = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  // x / f * 4096 + x mod f + start = x + start + x / f * (4096 - f)
  const __m512i factor = _mm512_sub_epi32(_mm512_set1_epi32(kRansTotal), frequency);
  return _mm512_add_epi32(_mm512_add_epi32(x, _mm512_srli_epi32(interval, 16)),
                          _mm512_mullo_epi32(quotient, factor));
}

}  // namespace

bool UseRansAvx512(unsigned lanes_log2) {
  return lanes_log2 == kMaxRansLanesLog2 && ActiveIsa() == "avx512";
}

KVSERVE_AVX512 std::size_t RansDecodeAvx512(const std::uint32_t* slots, std::uint32_t* states,
                                            std::span<std::uint8_t> symbols,
                                            std::span<const std::byte>& in) {
  const std::byte* words = in.data();
  const std::byte* const end = in.data() + in.size();
  __m512i low = _mm512_loadu_si512(states);
  __m512i high = _mm512_loadu_si512(states + 16);
  std::size_t i = 0;
  for (; i + kGroup <= symbols.size(); i += kGroup) {
    if (static_cast<std::size_t>(end - words) < 2 * kGroup) break;
    low = DecodeStep(slots, low, symbols.data() + i, words);
    high = DecodeStep(slots, high, symbols.data() + i + 16, words);
  }
  _mm512_storeu_si512(states, low);
  _mm512_storeu_si512(states + 16, high);
  in = {words, end};
  return i;
}

KVSERVE_AVX512 std::uint16_t* RansEncodeAvx512(std::span<const std::uint8_t> symbols,
                                               const RansTable& table, std::uint32_t* states,
                                               std::uint16_t* words) {
  EncoderTables tables;
  FillTables(table, tables);
  __m512i low = _mm512_loadu_si512(states);
  __m512i high = _mm512_loadu_si512(states + 16);
  for (std::size_t i = symbols.size(); i > 0; i -= kGroup) {
    high = EncodeStep(tables, high, symbols.data() + i - 16, words);
    low = EncodeStep(tables, low, symbols.data() + i - 32, words);
  }
  _mm512_storeu_si512(states, low);
  _mm512_storeu_si512(states + 16, high);
  return words;
}

}  // namespace kvserve

#else

namespace kvserve {

bool UseRansAvx512(unsigned /*lanes_log2*/) {
  return false;
}

std::size_t RansDecodeAvx512(const std::uint32_t* /*slots*/, std::uint32_t* /*states*/,
                             std::span<std::uint8_t> /*symbols*/,
                             std::span<const std::byte>& /*in*/) {
  return 0;
}

std::uint16_t* RansEncodeAvx512(std::span<const std::uint8_t> /*symbols*/,
                                const RansTable& /*table*/, std::uint32_t* /*states*/,
                                std::uint16_t* words) {
  return words;
}

}  // namespace kvserve

#endif
