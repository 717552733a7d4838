// Slots and intervals are gathered: what is frequent of 60 tables of intervals stays in the L1
// cache, the symbols of all slots in L2. Quotients are estimated in floats as in
// rans_avx512_encode.cc, every step rounded towards zero, so that the quotient is the estimate or
// the next.
#include "kernels/rans/context_kernels.h"
#include "kernels/rans/rans_x86.h"

#if KVSERVE_RANS_X86

#include <immintrin.h>

#include <algorithm>

namespace kvserve {
namespace {

constexpr int kTowardsZero = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
constexpr __mmask16 kAllLanes = 0xFFFF;

inline __mmask16 FirstLanes(std::size_t count) {
  return static_cast<__mmask16>((1U << std::min<std::size_t>(count, 16)) - 1);
}

KVSERVE_AVX512 inline __m512i Widen(const std::uint8_t* bytes, __mmask16 live) {
  return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(live, bytes));
}

// ---- decoder -----------------------------------------------------------------------------------

struct DecodeTables {
  const std::uint8_t* symbols;
  const std::uint32_t* intervals;
};

// Gives the coded bytes of 16 lanes and moves their states; words of the live ones.
KVSERVE_AVX512 inline __m512i DecodeLanes(const DecodeTables& tables, __m512i table, __mmask16 live,
                                          __m512i& state, const std::byte*& words) {
  const __m512i slot = _mm512_and_si512(state, _mm512_set1_epi32(kRansTotal - 1));
  const __m512i place = _mm512_or_si512(slot, _mm512_slli_epi32(table, kRansBits));
  const __m512i byte =
      _mm512_and_si512(_mm512_i32gather_epi32(place, tables.symbols, 1), _mm512_set1_epi32(0xFF));
  const __m512i interval = _mm512_i32gather_epi32(
      _mm512_or_si512(byte, _mm512_slli_epi32(table, 8)), tables.intervals, 4);
  const __m512i frequency = _mm512_and_si512(interval, _mm512_set1_epi32(0xFFFF));
  const __m512i offset = _mm512_sub_epi32(slot, _mm512_srli_epi32(interval, 16));
  const __m512i x = _mm512_add_epi32(
      offset, _mm512_mullo_epi32(frequency, _mm512_srli_epi32(state, static_cast<int>(kRansBits))));
  const __mmask16 refill = _mm512_mask_cmplt_epu32_mask(live, x, _mm512_set1_epi32(kRansLow));
  const __m512i next =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)));
  words += 2 * _mm_popcnt_u32(refill);
  const __m512i filled = _mm512_mask_or_epi32(x, refill, _mm512_slli_epi32(x, 16),
                                              _mm512_maskz_expand_epi32(refill, next));
  state = _mm512_mask_mov_epi32(state, live, filled);
  return byte;
}

template <int kVectors>
KVSERVE_AVX512 std::size_t DecodeGroups(const DecodeTables& tables, std::uint32_t* states,
                                        std::span<const std::uint8_t> indices, std::uint8_t* coded,
                                        RansWords& words) {
  constexpr std::size_t kGroup = 16 * kVectors;
  const std::byte* next = words.next;
  __m512i x[kVectors];
  for (int v = 0; v < kVectors; ++v) x[v] = _mm512_load_si512(states + 16 * v);
  std::size_t i = 0;
  for (; i + kGroup <= indices.size() && next <= words.stop; i += kGroup) {
    for (int v = 0; v < kVectors; ++v) {
      const std::size_t at = i + 16 * static_cast<std::size_t>(v);
      const __m512i byte =
          DecodeLanes(tables, Widen(&indices[at], kAllLanes), kAllLanes, x[v], next);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(coded + at), _mm512_cvtepi32_epi8(byte));
    }
  }
  for (int v = 0; v < kVectors; ++v) _mm512_store_si512(states + 16 * v, x[v]);
  words.next = next;
  return i;
}

KVSERVE_AVX512 std::size_t Decode(const ContextTables& tables, unsigned lanes_log2,
                                  std::uint32_t* states, std::span<const std::uint8_t> indices,
                                  std::uint8_t* coded, RansWords& words) {
  if (lanes_log2 < 4) {
    return PortableContextKernels().decode(tables, lanes_log2, states, indices, coded, words);
  }
  constexpr auto kGroups =
      std::array{DecodeGroups<1>, DecodeGroups<2>, DecodeGroups<4>, DecodeGroups<8>};
  const DecodeTables lookup = {tables.symbols.data(), tables.intervals.data()};
  const std::size_t whole = indices.size() >> lanes_log2 << lanes_log2;
  const std::size_t done =
      kGroups[lanes_log2 - 4](lookup, states, indices.first(whole), coded, words);
  if (done < whole || words.next > words.stop) return done;
  for (std::size_t i = whole; i < indices.size(); i += 16) {
    const __mmask16 live = FirstLanes(indices.size() - i);
    __m512i x = _mm512_load_si512(states + (i - whole));
    const __m512i byte = DecodeLanes(lookup, Widen(&indices[i], live), live, x, words.next);
    _mm512_store_si512(states + (i - whole), x);
    _mm_mask_storeu_epi8(coded + i, live, _mm512_cvtepi32_epi8(byte));
  }
  return indices.size();
}

// ---- encoder -----------------------------------------------------------------------------------

struct Sinks {
  std::uint16_t* words;
  std::uint8_t* escaped;
};

// Escaped bytes of the lanes of `which`, and the escapes' intervals in their place.
KVSERVE_AVX512 __m512i Escape(const std::uint32_t* intervals, __m512i interval, __m512i table,
                              __m128i bytes, __mmask16 which, Sinks& sinks) {
  std::array<std::uint8_t, 16> values{};
  _mm_storeu_si128(reinterpret_cast<__m128i*>(values.data()), bytes);
  for (unsigned lane = 16; lane-- > 0;) {
    if ((which >> lane & 1U) != 0) *--sinks.escaped = values[lane];
  }
  const __m512i escapes = _mm512_or_si512(table, _mm512_set1_epi32(kContextEscape));
  return _mm512_mask_i32gather_epi32(interval, which, escapes, intervals, 4);
}

// Stores the words of the live lanes whose states are too large, those of higher lanes at higher
// addresses.
KVSERVE_AVX512 inline __m512i Emit(__m512i x, __m512i frequency, __mmask16 live,
                                   std::uint16_t*& words) {
  const __mmask16 emit = _mm512_mask_cmpge_epu32_mask(live, x, _mm512_slli_epi32(frequency, 20));
  const auto count = static_cast<unsigned>(_mm_popcnt_u32(emit));
  words -= count;
  _mm256_mask_storeu_epi16(words, static_cast<__mmask16>(_bzhi_u32(0xFFFF, count)),
                           _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(emit, x)));
  return _mm512_mask_srli_epi32(x, emit, x, 16);
}

KVSERVE_AVX512 inline __m512i EncodeLanes(const std::uint32_t* intervals, __m512i state,
                                          __m128i bytes, __m512i table, __mmask16 live,
                                          Sinks& sinks) {
  table = _mm512_slli_epi32(table, 8);
  __m512i interval =
      _mm512_i32gather_epi32(_mm512_or_si512(table, _mm512_cvtepu8_epi32(bytes)), intervals, 4);
  const __mmask16 lacking = _mm512_testn_epi32_mask(interval, _mm512_set1_epi32(0xFFFF)) |
                            _mm_cmpeq_epi8_mask(bytes, _mm_set1_epi8(-1));
  if ((lacking & live) != 0) [[unlikely]] {
    interval = Escape(intervals, interval, table, bytes, lacking & live, sinks);
  }
  const __m512i frequency = _mm512_and_si512(interval, _mm512_set1_epi32(0xFFFF));
  const __m512i x = Emit(state, frequency, live, sinks.words);
  const __m512 ratio = _mm512_div_round_ps(_mm512_cvt_roundepu32_ps(x, kTowardsZero),
                                           _mm512_cvtepi32_ps(frequency), kTowardsZero);
  __m512i quotient = _mm512_cvttps_epu32(ratio);
  __m512i rest = _mm512_sub_epi32(x, _mm512_mullo_epi32(quotient, frequency));
  const __mmask16 one_short = _mm512_cmpge_epu32_mask(rest, frequency);
  rest = _mm512_mask_sub_epi32(rest, one_short, rest, frequency);
  quotient = _mm512_mask_add_epi32(quotient, one_short, quotient, _mm512_set1_epi32(1));
  const __m512i slot = _mm512_add_epi32(_mm512_srli_epi32(interval, 16), rest);
  return _mm512_or_si512(_mm512_slli_epi32(quotient, static_cast<int>(kRansBits)), slot);
}

template <int kVectors>
KVSERVE_AVX512 void EncodeGroups(const std::uint32_t* intervals, std::uint32_t* states,
                                 const ContextPart& part, std::size_t count, Sinks& sinks) {
  constexpr std::size_t kGroup = 16 * kVectors;
  const __m128i offset = _mm_set1_epi8(static_cast<char>(part.offset));
  Sinks out = sinks;
  __m512i x[kVectors];
  for (int v = 0; v < kVectors; ++v) x[v] = _mm512_load_si512(states + 16 * v);
  for (std::size_t i = count; i > 0; i -= kGroup) {
    for (int v = kVectors - 1; v >= 0; --v) {
      const std::size_t at = i - kGroup + 16 * static_cast<std::size_t>(v);
      const __m128i bytes = _mm_add_epi8(
          offset, _mm_loadu_si128(reinterpret_cast<const __m128i*>(&part.symbols[at])));
      x[v] =
          EncodeLanes(intervals, x[v], bytes, Widen(&part.indices[at], kAllLanes), kAllLanes, out);
    }
  }
  for (int v = 0; v < kVectors; ++v) _mm512_store_si512(states + 16 * v, x[v]);
  sinks = out;
}

KVSERVE_AVX512 void Encode(const ContextTables& tables, unsigned lanes_log2, std::uint32_t* states,
                           const ContextPart& part, std::uint16_t*& words, std::uint8_t*& escaped) {
  if (lanes_log2 < 4) {
    return PortableContextKernels().encode(tables, lanes_log2, states, part, words, escaped);
  }
  constexpr auto kGroups =
      std::array{EncodeGroups<1>, EncodeGroups<2>, EncodeGroups<4>, EncodeGroups<8>};
  const std::uint32_t* const intervals = tables.intervals.data();
  const __m128i offset = _mm_set1_epi8(static_cast<char>(part.offset));
  const std::size_t whole = part.symbols.size() >> lanes_log2 << lanes_log2;
  Sinks sinks = {words, escaped};
  for (std::size_t end = part.symbols.size(); end > whole;) {
    const std::size_t begin = whole + (end - whole - 1) / 16 * 16;
    const __mmask16 live = FirstLanes(end - begin);
    const __m512i x = _mm512_load_si512(states + (begin - whole));
    const __m128i bytes =
        _mm_add_epi8(offset, _mm_maskz_loadu_epi8(live, part.symbols.data() + begin));
    const __m512i moved =
        EncodeLanes(intervals, x, bytes, Widen(&part.indices[begin], live), live, sinks);
    _mm512_store_si512(states + (begin - whole), _mm512_mask_mov_epi32(x, live, moved));
    end = begin;
  }
  kGroups[lanes_log2 - 4](intervals, states, part, whole, sinks);
  words = sinks.words;
  escaped = sinks.escaped;
}

// ---- code length -------------------------------------------------------------------------------

KVSERVE_AVX512 ContextLength Measure(const ContextTables& tables, const ContextPart& part) {
  // A lane's sum of 15 bits each overflows after 2^17 symbols, the count of escapes after 2^32.
  constexpr std::size_t kChunk = std::size_t{16} << 16;
  const __m128i offset = _mm_set1_epi8(static_cast<char>(part.offset));
  ContextLength sum;
  for (std::size_t begin = 0; begin < part.symbols.size(); begin += kChunk) {
    const std::size_t end = std::min(begin + kChunk, part.symbols.size());
    __m512i lengths = _mm512_setzero_si512();
    __m512i escapes = _mm512_setzero_si512();
    for (std::size_t i = begin; i < end; i += 16) {
      const __mmask16 live = FirstLanes(end - i);
      const __m128i bytes = _mm_add_epi8(offset, _mm_maskz_loadu_epi8(live, &part.symbols[i]));
      const __m512i table = _mm512_slli_epi32(Widen(&part.indices[i], live), 8);
      const __m512i place = _mm512_or_si512(table, _mm512_cvtepu8_epi32(bytes));
      const __m512i length = _mm512_i32gather_epi32(place, tables.lengths.data(), 2);
      lengths = _mm512_mask_add_epi32(
          lengths, live, lengths, _mm512_and_si512(length, _mm512_set1_epi32(kContextEscaped - 1)));
      escapes = _mm512_mask_add_epi32(
          escapes, live, escapes,
          _mm512_and_si512(_mm512_srli_epi32(length, 15), _mm512_set1_epi32(1)));
    }
    alignas(64) std::array<std::uint32_t, 16> lanes;
    _mm512_store_si512(lanes.data(), lengths);
    for (const std::uint32_t lane : lanes) sum.code_length += lane;
    sum.escapes += static_cast<std::uint32_t>(_mm512_reduce_add_epi32(escapes));
  }
  return sum;
}

}  // namespace

const ContextKernels* Avx512ContextKernels() {
  static constexpr ContextKernels kKernels = {Decode, Encode, Measure};
  return &kKernels;
}

}  // namespace kvserve

#else

namespace kvserve {

const ContextKernels* Avx512ContextKernels() {
  return nullptr;
}

}  // namespace kvserve

#endif
