// As context_avx512.cc in vectors of 8 states. Divisors are frequencies, of which there are few, so
// quotients come from a table of reciprocals that stays in the first-level cache.
#include "kernels/rans/context_kernels.h"
#include "kernels/rans/rans_avx2.h"

#if KVSERVE_RANS_X86

#include <immintrin.h>

#include <algorithm>
#include <array>

namespace kvserve {
namespace {

using namespace avx2;  // NOLINT(google-build-using-namespace): this file is their other half

// [frequency] 2^32 / frequency rounded down, which gives a quotient that is exact or one too small.
constexpr auto kReciprocals = [] {
  std::array<std::uint32_t, kRansTotal + 1> table{};
  for (std::uint32_t f = 1; f <= kRansTotal; ++f) table[f] = UINT32_MAX / f;
  return table;
}();

KVSERVE_AVX2 inline __m256i Widen(const std::uint8_t* bytes) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
}

// ---- decoder -----------------------------------------------------------------------------------

// Gives the coded bytes of 8 lanes and moves their states.
KVSERVE_AVX2 inline __m256i DecodeLanes(const ContextTables& tables, __m256i table, __m256i& state,
                                        const std::byte*& words) {
  const __m256i slot = _mm256_and_si256(state, _mm256_set1_epi32(kRansTotal - 1));
  const __m256i place = _mm256_or_si256(slot, _mm256_slli_epi32(table, kRansBits));
  const __m256i byte = _mm256_and_si256(
      _mm256_i32gather_epi32(reinterpret_cast<const int*>(tables.symbols.data()), place, 1),
      _mm256_set1_epi32(0xFF));
  const __m256i interval =
      Gather(tables.intervals.data(), _mm256_or_si256(byte, _mm256_slli_epi32(table, 8)));
  const __m256i frequency = _mm256_and_si256(interval, _mm256_set1_epi32(0xFFFF));
  const __m256i offset = _mm256_sub_epi32(slot, _mm256_srli_epi32(interval, 16));
  const __m256i x = _mm256_add_epi32(
      offset, _mm256_mullo_epi32(frequency, _mm256_srli_epi32(state, static_cast<int>(kRansBits))));
  state = Refill(x, words);
  return byte;
}

KVSERVE_AVX2 std::size_t DecodeGroups(const ContextTables& tables, std::size_t lanes,
                                      std::uint32_t* states, std::span<const std::uint8_t> indices,
                                      std::uint8_t* coded, RansWords& words) {
  const __m256i low_bytes = _mm256_set1_epi32(0x0C080400);
  const std::byte* next = words.next;
  std::size_t i = 0;
  for (; i + lanes <= indices.size() && next <= words.stop; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; lane += kLanes) {
      __m256i x = Load(states + lane);
      const __m256i byte = DecodeLanes(tables, Widen(&indices[i + lane]), x, next);
      Store(states + lane, x);
      const __m256i bytes = _mm256_shuffle_epi8(byte, low_bytes);
      _mm_storel_epi64(
          reinterpret_cast<__m128i*>(coded + i + lane),
          _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
    }
  }
  words.next = next;
  return i;
}

std::size_t Decode(const ContextTables& tables, unsigned lanes_log2, std::uint32_t* states,
                   std::span<const std::uint8_t> indices, std::uint8_t* coded, RansWords& words) {
  std::size_t done = 0;
  if (lanes_log2 >= 3) {
    const std::size_t lanes = std::size_t{1} << lanes_log2;
    done = DecodeGroups(tables, lanes, states, indices, coded, words);
    if (indices.size() - done >= lanes) return done;
  }
  return done + PortableContextKernels().decode(tables, lanes_log2, states, indices.subspan(done),
                                                coded + done, words);
}

// ---- encoder -----------------------------------------------------------------------------------

// Lanes of -1 where the table lacks the symbol.
KVSERVE_AVX2 inline __m256i Lacking(__m256i interval, __m256i byte) {
  const __m256i frequency = _mm256_and_si256(interval, _mm256_set1_epi32(0xFFFF));
  return _mm256_or_si256(_mm256_cmpeq_epi32(frequency, _mm256_setzero_si256()),
                         _mm256_cmpeq_epi32(byte, _mm256_set1_epi32(kContextEscape)));
}

// Escaped bytes of the lanes that lack, and the escapes' intervals in their place.
KVSERVE_AVX2 __m256i Escape(const ContextTables& tables, __m256i interval, __m256i table,
                            __m256i byte, __m256i lacking, std::uint8_t*& escaped) {
  alignas(32) std::array<std::uint32_t, kLanes> values;
  _mm256_store_si256(reinterpret_cast<__m256i*>(values.data()), byte);
  const unsigned which = TopBits(lacking);
  for (unsigned lane = kLanes; lane-- > 0;) {
    if ((which >> lane & 1U) != 0) *--escaped = static_cast<std::uint8_t>(values[lane]);
  }
  const __m256i escapes = _mm256_or_si256(table, _mm256_set1_epi32(kContextEscape));
  return Blend(interval, Gather(tables.intervals.data(), escapes), lacking);
}

KVSERVE_AVX2 inline __m256i EncodeLanes(const ContextTables& tables, __m256i state, __m256i byte,
                                        __m256i table, std::uint16_t*& words,
                                        std::uint8_t*& escaped) {
  table = _mm256_slli_epi32(table, 8);
  __m256i interval = Gather(tables.intervals.data(), _mm256_or_si256(table, byte));
  const __m256i lacking = Lacking(interval, byte);
  if (_mm256_testz_si256(lacking, lacking) == 0) [[unlikely]] {
    interval = Escape(tables, interval, table, byte, lacking, escaped);
  }
  const __m256i frequency = _mm256_and_si256(interval, _mm256_set1_epi32(0xFFFF));
  const __m256i reciprocal = Gather(kReciprocals.data(), frequency);
  const __m256i x = Emit(state, frequency, words);
  __m256i quotient = MultiplyHigh(x, reciprocal);
  __m256i rest = _mm256_sub_epi32(x, _mm256_mullo_epi32(quotient, frequency));
  const __m256i exact = _mm256_cmpgt_epi32(frequency, rest);
  rest = _mm256_sub_epi32(rest, _mm256_andnot_si256(exact, frequency));
  quotient = _mm256_add_epi32(quotient, _mm256_add_epi32(exact, _mm256_set1_epi32(1)));
  const __m256i slot = _mm256_add_epi32(_mm256_srli_epi32(interval, 16), rest);
  return _mm256_or_si256(_mm256_slli_epi32(quotient, static_cast<int>(kRansBits)), slot);
}

KVSERVE_AVX2 void EncodeGroups(const ContextTables& tables, std::size_t lanes,
                               std::uint32_t* states, const ContextPart& part, std::size_t count,
                               std::uint16_t*& words, std::uint8_t*& escaped) {
  const __m128i offset = _mm_set1_epi8(static_cast<char>(part.offset));
  std::uint16_t* out = words;
  std::uint8_t* beside = escaped;
  for (std::size_t i = count; i > 0; i -= lanes) {
    for (std::size_t lane = lanes; lane > 0;) {
      lane -= kLanes;
      const std::size_t at = i - lanes + lane;
      const __m128i symbols = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&part.symbols[at]));
      const __m256i byte = _mm256_cvtepu8_epi32(_mm_add_epi8(symbols, offset));
      Store(states + lane,
            EncodeLanes(tables, Load(states + lane), byte, Widen(&part.indices[at]), out, beside));
    }
  }
  words = out;
  escaped = beside;
}

void Encode(const ContextTables& tables, unsigned lanes_log2, std::uint32_t* states,
            const ContextPart& part, std::uint16_t*& words, std::uint8_t*& escaped) {
  const auto portable = PortableContextKernels().encode;
  if (lanes_log2 < 3) return portable(tables, lanes_log2, states, part, words, escaped);
  const std::size_t whole = part.symbols.size() >> lanes_log2 << lanes_log2;
  portable(tables, lanes_log2, states,
           {part.symbols.subspan(whole), part.indices.subspan(whole), part.offset}, words, escaped);
  EncodeGroups(tables, std::size_t{1} << lanes_log2, states, part, whole, words, escaped);
}

// ---- code length -------------------------------------------------------------------------------

KVSERVE_AVX2 ContextLength Measure(const ContextTables& tables, const ContextPart& part) {
  // A lane's sum of 15 bits each overflows after 2^17 symbols.
  constexpr std::size_t kChunk = kLanes << 16;
  const __m128i offset = _mm_set1_epi8(static_cast<char>(part.offset));
  const std::size_t whole = part.symbols.size() / kLanes * kLanes;
  ContextLength sum = PortableContextKernels().measure(
      tables, {part.symbols.subspan(whole), part.indices.subspan(whole), part.offset});
  for (std::size_t begin = 0; begin < whole; begin += kChunk) {
    __m256i lengths = _mm256_setzero_si256();
    __m256i escapes = _mm256_setzero_si256();
    for (std::size_t i = begin; i < std::min(begin + kChunk, whole); i += kLanes) {
      const __m128i symbols = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&part.symbols[i]));
      const __m256i place = _mm256_or_si256(_mm256_cvtepu8_epi32(_mm_add_epi8(symbols, offset)),
                                            _mm256_slli_epi32(Widen(&part.indices[i]), 8));
      const __m256i length =
          _mm256_i32gather_epi32(reinterpret_cast<const int*>(tables.lengths.data()), place, 2);
      lengths = _mm256_add_epi32(lengths,
                                 _mm256_and_si256(length, _mm256_set1_epi32(kContextEscaped - 1)));
      escapes = _mm256_add_epi32(
          escapes, _mm256_and_si256(_mm256_srli_epi32(length, 15), _mm256_set1_epi32(1)));
    }
    alignas(32) std::array<std::array<std::uint32_t, kLanes>, 2> lanes;
    Store(lanes[0].data(), lengths);
    Store(lanes[1].data(), escapes);
    for (const std::uint32_t lane : lanes[0]) sum.code_length += lane;
    for (const std::uint32_t lane : lanes[1]) sum.escapes += lane;
  }
  return sum;
}

}  // namespace

const ContextKernels* Avx2ContextKernels() {
  static constexpr ContextKernels kKernels = {Decode, Encode, Measure};
  return &kKernels;
}

}  // namespace kvserve

#else

namespace kvserve {

const ContextKernels* Avx2ContextKernels() {
  return nullptr;
}

}  // namespace kvserve

#endif
