// Alias tables are looked up in registers: permutations take the low bits of their indices, so a
// bucket is one shift of the state. Larger tables are gathered.
#include "kernels/rans/rans_x86.h"

#if KVSERVE_RANS_X86

#include <immintrin.h>

#include <algorithm>

namespace kvserve {
namespace {

// 16 buckets, 32 buckets, or a slot table in memory.
enum class Lookup : std::uint8_t { kNarrow, kWide, kGather };

struct Registers {
  __m512i divider[2];
  __m512i primary[2];
  __m512i alias[2];
  __m512i symbols[2];  // bytes, in every 128-bit lane
  const std::uint32_t* slots;
};

template <Lookup kLookup>
KVSERVE_AVX512 inline Registers Load(const RansDecoderTable& table) {
  Registers r;
  r.slots = table.slots.data();
  if (kLookup == Lookup::kGather) return r;
  for (std::size_t half = 0; half < 2; ++half) {
    r.divider[half] = _mm512_load_si512(&table.alias.divider[16 * half]);
    r.primary[half] = _mm512_load_si512(&table.alias.primary[16 * half]);
    r.alias[half] = _mm512_load_si512(&table.alias.alias[16 * half]);
    r.symbols[half] = _mm512_broadcast_i32x4(
        _mm_load_si128(reinterpret_cast<const __m128i*>(&table.alias.symbols[16 * half])));
  }
  return r;
}

template <Lookup kLookup>
KVSERVE_AVX512 inline __m512i Find(const __m512i (&table)[2], __m512i bucket) {
  if (kLookup == Lookup::kNarrow) return _mm512_permutexvar_epi32(bucket, table[0]);
  return _mm512_permutex2var_epi32(table[0], bucket, table[1]);
}

// The state before renormalisation; gives the entry, whose bits from 12 on are the symbol's index.
template <Lookup kLookup>
KVSERVE_AVX512 inline __m512i Advance(const Registers& r, __m512i x, __m512i& entry) {
  const __m512i low = _mm512_set1_epi32(kRansTotal - 1);
  const __m512i slot = _mm512_and_si512(x, low);
  __m512i offset;
  if (kLookup == Lookup::kGather) {
    entry = _mm512_i32gather_epi32(slot, r.slots, 4);
    offset = _mm512_srli_epi32(entry, 20);
  } else {
    const __m512i bucket = _mm512_srli_epi32(x, kLookup == Lookup::kNarrow ? 8 : 7);
    const __mmask16 alias = _mm512_cmpge_epu32_mask(slot, Find<kLookup>(r.divider, bucket));
    entry = _mm512_mask_mov_epi32(Find<kLookup>(r.primary, bucket), alias,
                                  Find<kLookup>(r.alias, bucket));
    offset = _mm512_add_epi32(slot, _mm512_srai_epi32(entry, 17));
  }
  const __m512i frequency = _mm512_and_si512(entry, low);
  return _mm512_add_epi32(
      offset, _mm512_mullo_epi32(frequency, _mm512_srli_epi32(x, static_cast<int>(kRansBits))));
}

KVSERVE_AVX512 inline __m512i Refill(__m512i x, __mmask16 live, const std::byte*& words) {
  const __mmask16 refill = _mm512_mask_cmplt_epu32_mask(live, x, _mm512_set1_epi32(kRansLow));
  const __m512i next =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)));
  words += 2 * _mm_popcnt_u32(refill);
  return _mm512_mask_or_epi32(x, refill, _mm512_slli_epi32(x, 16),
                              _mm512_maskz_expand_epi32(refill, next));
}

template <Lookup kLookup>
KVSERVE_AVX512 inline __m512i SymbolsOf(const Registers& r, __m512i indices) {
  if (kLookup == Lookup::kGather) return indices;
  const __m512i low = _mm512_shuffle_epi8(r.symbols[0], indices);
  if (kLookup == Lookup::kNarrow) return low;
  const __mmask64 upper = _mm512_test_epi8_mask(indices, _mm512_set1_epi8(16));
  return _mm512_mask_shuffle_epi8(low, upper, r.symbols[1], indices);
}

// The symbols of four vectors, 64 bytes in order.
template <Lookup kLookup>
KVSERVE_AVX512 inline __m512i FourSymbols(const Registers& r, const __m512i* entries) {
  constexpr std::uint32_t kIndex = kLookup == Lookup::kGather ? 0xFF : 0x1F;
  constexpr int kOrIfBoth = 0xF8;  // a | (b & c)
  __m512i s = _mm512_and_si512(_mm512_srli_epi32(entries[0], 12), _mm512_set1_epi32(kIndex));
  s = _mm512_ternarylogic_epi32(s, _mm512_srli_epi32(entries[1], 4), _mm512_set1_epi32(kIndex << 8),
                                kOrIfBoth);
  s = _mm512_ternarylogic_epi32(s, _mm512_slli_epi32(entries[2], 4),
                                _mm512_set1_epi32(kIndex << 16), kOrIfBoth);
  s = _mm512_ternarylogic_epi32(s, _mm512_slli_epi32(entries[3], 12),
                                _mm512_set1_epi32(static_cast<int>(kIndex << 24)), kOrIfBoth);
  // Byte v of word w goes to byte w of vector v: first within 128 bits, then words across.
  const __m512i within =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m512i across = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return SymbolsOf<kLookup>(r, _mm512_permutexvar_epi32(across, _mm512_shuffle_epi8(s, within)));
}

template <Lookup kLookup>
KVSERVE_AVX512 inline __m128i OneSymbols(const Registers& r, __m512i entry) {
  constexpr std::int8_t kIndex = kLookup == Lookup::kGather ? -1 : 0x1F;
  const __m128i indices =
      _mm_and_si128(_mm512_cvtepi32_epi8(_mm512_srli_epi32(entry, 12)), _mm_set1_epi8(kIndex));
  return _mm512_castsi512_si128(SymbolsOf<kLookup>(r, _mm512_castsi128_si512(indices)));
}

template <Lookup kLookup, int kVectors>
KVSERVE_AVX512 std::size_t DecodeGroups(const Registers& registers, std::uint32_t* states,
                                        std::span<std::uint8_t> symbols, RansWords& words) {
  constexpr std::size_t kGroup = 16 * kVectors;
  const Registers r = registers;
  const std::byte* next = words.next;
  __m512i x[kVectors];
  __m512i entries[kVectors];
  for (int v = 0; v < kVectors; ++v) x[v] = _mm512_load_si512(states + 16 * v);
  std::size_t i = 0;
  for (; i + kGroup <= symbols.size() && next <= words.stop; i += kGroup) {
    for (int v = 0; v < kVectors; ++v) {
      x[v] = Refill(Advance<kLookup>(r, x[v], entries[v]), 0xFFFF, next);
    }
    std::uint8_t* const out = &symbols[i];
    if (kVectors % 4 == 0) {
      for (int v = 0; v < kVectors; v += 4) {
        _mm512_storeu_si512(out + 16 * v, FourSymbols<kLookup>(r, entries + v));
      }
    } else {
      for (int v = 0; v < kVectors; ++v) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16 * v),
                         OneSymbols<kLookup>(r, entries[v]));
      }
    }
  }
  for (int v = 0; v < kVectors; ++v) _mm512_store_si512(states + 16 * v, x[v]);
  words.next = next;
  return i;
}

// The last group, of fewer symbols than lanes.
template <Lookup kLookup>
KVSERVE_AVX512 void DecodeRest(const Registers& r, std::uint32_t* states,
                               std::span<std::uint8_t> symbols, RansWords& words) {
  for (std::size_t i = 0; i < symbols.size(); i += 16) {
    const auto count = static_cast<unsigned>(std::min<std::size_t>(symbols.size() - i, 16));
    const auto live = static_cast<__mmask16>(_bzhi_u32(0xFFFF, count));
    const __m512i x = _mm512_load_si512(states + i);
    __m512i entry;
    const __m512i moved = Refill(Advance<kLookup>(r, x, entry), live, words.next);
    _mm512_store_si512(states + i, _mm512_mask_mov_epi32(x, live, moved));
    _mm_mask_storeu_epi8(&symbols[i], live, OneSymbols<kLookup>(r, entry));
  }
}

template <Lookup kLookup>
KVSERVE_AVX512 std::size_t DecodeWith(const RansDecoderTable& table, unsigned lanes_log2,
                                      std::uint32_t* states, std::span<std::uint8_t> symbols,
                                      RansWords& words) {
  constexpr auto kGroups = std::array{DecodeGroups<kLookup, 1>, DecodeGroups<kLookup, 2>,
                                      DecodeGroups<kLookup, 4>, DecodeGroups<kLookup, 8>};
  const Registers r = Load<kLookup>(table);
  const std::size_t whole = symbols.size() >> lanes_log2 << lanes_log2;
  const std::size_t done = kGroups[lanes_log2 - 4](r, states, symbols.first(whole), words);
  if (done < whole || words.next > words.stop) return done;
  DecodeRest<kLookup>(r, states, symbols.subspan(whole), words);
  return symbols.size();
}

}  // namespace

std::size_t RansDecodeAvx512(const RansDecoderTable& table, unsigned lanes_log2,
                             std::uint32_t* states, std::span<std::uint8_t> symbols,
                             RansWords& words) {
  if (lanes_log2 < 4) {
    return PortableRansKernels().decode(table, lanes_log2, states, symbols, words);
  }
  const auto decode = !table.use_alias            ? DecodeWith<Lookup::kGather>
                      : table.alias.buckets == 16 ? DecodeWith<Lookup::kNarrow>
                                                  : DecodeWith<Lookup::kWide>;
  return decode(table, lanes_log2, states, symbols, words);
}

const RansKernels* Avx512RansKernels() {
  static constexpr RansKernels kKernels = {RansDecodeAvx512, RansEncodeAvx512};
  return &kKernels;
}

}  // namespace kvserve

#else

namespace kvserve {

const RansKernels* Avx512RansKernels() {
  return nullptr;
}

}  // namespace kvserve

#endif
