// Vectors of 8 states. Tables of 8 entries are permutations; larger ones are put together from
// them.
#include "kernels/rans/rans_avx2.h"

#if KVSERVE_RANS_X86

#include <immintrin.h>

#include <type_traits>

namespace kvserve {
namespace {

using namespace avx2;  // NOLINT(google-build-using-namespace): this file is their other half

enum class Lookup : std::uint8_t { kNarrow, kWide, kGather };

// 16 or 32 entries.
struct Quarters {
  __m256i part[4];
};

template <Lookup kLookup>
KVSERVE_AVX2 inline Quarters LoadQuarters(const std::array<std::uint32_t, 32>& table) {
  Quarters q;
  for (std::size_t i = 0; i < (kLookup == Lookup::kWide ? 4 : 2); ++i) {
    q.part[i] = Load(&table[8 * i]);
  }
  return q;
}

// Bits 0..2 of `index` choose within a part, the top bits of `lower` and `upper` the part.
template <Lookup kLookup>
KVSERVE_AVX2 inline __m256i Find(const Quarters& table, __m256i index, __m256i lower,
                                 __m256i upper) {
  const __m256i first = Blend(_mm256_permutevar8x32_epi32(table.part[0], index),
                              _mm256_permutevar8x32_epi32(table.part[1], index), lower);
  if (kLookup != Lookup::kWide) return first;
  const __m256i second = Blend(_mm256_permutevar8x32_epi32(table.part[2], index),
                               _mm256_permutevar8x32_epi32(table.part[3], index), lower);
  return Blend(first, second, upper);
}

struct DecoderRegisters {
  Quarters divider;
  Quarters primary;
  Quarters alias;
  __m128i symbols[2];
  const std::uint32_t* slots;
};

template <Lookup kLookup>
KVSERVE_AVX2 inline __m256i Advance(const DecoderRegisters& r, __m256i x, __m256i& entry) {
  const __m256i low = _mm256_set1_epi32(kRansTotal - 1);
  const __m256i slot = _mm256_and_si256(x, low);
  __m256i offset;
  if (kLookup == Lookup::kGather) {
    entry = Gather(r.slots, slot);
    offset = _mm256_srli_epi32(entry, 20);
  } else {
    constexpr bool kIsWide = kLookup == Lookup::kWide;
    const __m256i bucket = _mm256_srli_epi32(x, kIsWide ? 7 : 8);
    const __m256i lower = _mm256_slli_epi32(x, kIsWide ? 21 : 20);
    const __m256i upper = _mm256_slli_epi32(x, 20);
    const __m256i divider = Find<kLookup>(r.divider, bucket, lower, upper);
    entry =
        Blend(Find<kLookup>(r.alias, bucket, lower, upper),
              Find<kLookup>(r.primary, bucket, lower, upper), _mm256_cmpgt_epi32(divider, slot));
    offset = _mm256_add_epi32(slot, _mm256_srai_epi32(entry, 17));
  }
  const __m256i frequency = _mm256_and_si256(entry, low);
  return _mm256_add_epi32(
      offset, _mm256_mullo_epi32(frequency, _mm256_srli_epi32(x, static_cast<int>(kRansBits))));
}

template <Lookup kLookup>
KVSERVE_AVX2 inline void StoreSymbols(const DecoderRegisters& r, __m256i entry, std::uint8_t* out) {
  const __m256i bytes =
      _mm256_shuffle_epi8(_mm256_srli_epi32(entry, 12),
                          _mm256_set1_epi32(0x0C080400));  // the low byte of each word of 128 bits
  __m128i symbols =
      _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  if (kLookup != Lookup::kGather) {
    const __m128i indices = _mm_and_si128(symbols, _mm_set1_epi8(0x1F));
    symbols = _mm_shuffle_epi8(r.symbols[0], indices);
    if (kLookup == Lookup::kWide) {
      symbols = _mm_blendv_epi8(symbols, _mm_shuffle_epi8(r.symbols[1], indices),
                                _mm_slli_epi16(indices, 3));
    }
  }
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), symbols);
}

template <Lookup kLookup>
KVSERVE_AVX2 std::size_t DecodeGroups(const RansDecoderTable& table, std::size_t lanes,
                                      std::uint32_t* states, std::span<std::uint8_t> symbols,
                                      RansWords& words) {
  DecoderRegisters r;
  r.slots = table.slots.data();
  if (kLookup != Lookup::kGather) {
    r.divider = LoadQuarters<kLookup>(table.alias.divider);
    r.primary = LoadQuarters<kLookup>(table.alias.primary);
    r.alias = LoadQuarters<kLookup>(table.alias.alias);
    for (std::size_t half = 0; half < 2; ++half) {
      r.symbols[half] =
          _mm_load_si128(reinterpret_cast<const __m128i*>(&table.alias.symbols[16 * half]));
    }
  }
  const std::byte* next = words.next;
  std::size_t i = 0;
  for (; i + lanes <= symbols.size() && next <= words.stop; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; lane += kLanes) {
      __m256i entry;
      const __m256i x = Advance<kLookup>(r, Load(states + lane), entry);
      Store(states + lane, Refill(x, next));
      StoreSymbols<kLookup>(r, entry, &symbols[i + lane]);
    }
  }
  words.next = next;
  return i;
}

std::size_t DecodeAvx2(const RansDecoderTable& table, unsigned lanes_log2, std::uint32_t* states,
                       std::span<std::uint8_t> symbols, RansWords& words) {
  std::size_t done = 0;
  if (lanes_log2 >= 3) {
    const auto groups = !table.use_alias            ? DecodeGroups<Lookup::kGather>
                        : table.alias.buckets == 16 ? DecodeGroups<Lookup::kNarrow>
                                                    : DecodeGroups<Lookup::kWide>;
    const std::size_t lanes = std::size_t{1} << lanes_log2;
    done = groups(table, lanes, states, symbols, words);
    if (symbols.size() - done >= lanes) return done;
  }
  const auto rest = symbols.subspan(done);
  return done + PortableRansKernels().decode(table, lanes_log2, states, rest, words);
}

// By symbol: intervals, and 2^32 / frequency rounded down, which gives a quotient that is exact or
// one too small.
struct EncoderMemory {
  alignas(32) std::array<std::uint32_t, 256> reciprocal{};
  alignas(32) std::array<std::uint32_t, 32> near_interval{};  // [symbol mod 16 or 32]
  alignas(32) std::array<std::uint32_t, 32> near_reciprocal{};
};

// Whether no two symbols meet modulo `size`.
bool PlaceNear(const RansEncoderTable& table, std::size_t size, EncoderMemory& memory) {
  memory.near_interval.fill(0);
  for (std::size_t s = 0; s < 256; ++s) {
    if (table.interval[s] % 0x10000 == 0) continue;
    if (memory.near_interval[s % size] != 0) return false;
    memory.near_interval[s % size] = table.interval[s];
    memory.near_reciprocal[s % size] = memory.reciprocal[s];
  }
  return true;
}

Lookup FillMemory(const RansEncoderTable& table, EncoderMemory& memory) {
  for (std::size_t s = 0; s < 256; ++s) {
    const std::uint32_t frequency = table.interval[s] & 0xFFFFU;
    if (frequency > 0) memory.reciprocal[s] = UINT32_MAX / frequency;
  }
  if (PlaceNear(table, 16, memory)) return Lookup::kNarrow;
  return PlaceNear(table, 32, memory) ? Lookup::kWide : Lookup::kGather;
}

template <Lookup kLookup, bool kAlias>
KVSERVE_AVX2 std::uint16_t* EncodeGroups(const RansEncoderTable& table, const EncoderMemory& memory,
                                         std::size_t lanes, std::uint32_t* states,
                                         std::span<const std::uint8_t> symbols,
                                         std::uint16_t* words) {
  const Quarters intervals = LoadQuarters<kLookup>(memory.near_interval);
  const Quarters reciprocals = LoadQuarters<kLookup>(memory.near_reciprocal);
  const __m256i low = _mm256_set1_epi32(0xFFFF);
  for (std::size_t i = symbols.size(); i > 0; i -= lanes) {
    for (std::size_t lane = lanes; lane > 0;) {
      lane -= kLanes;
      const __m256i s = _mm256_cvtepu8_epi32(
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(symbols.data() + i - lanes + lane)));
      __m256i interval;
      __m256i reciprocal;
      if (kLookup != Lookup::kGather) {
        const __m256i lower = _mm256_slli_epi32(s, 28);
        const __m256i upper = _mm256_slli_epi32(s, 27);
        interval = Find<kLookup>(intervals, s, lower, upper);
        reciprocal = Find<kLookup>(reciprocals, s, lower, upper);
      } else {
        interval = Gather(table.interval.data(), s);
        reciprocal = Gather(memory.reciprocal.data(), s);
      }
      const __m256i frequency = _mm256_and_si256(interval, low);
      const __m256i x = Emit(Load(states + lane), frequency, words);
      __m256i quotient = MultiplyHigh(x, reciprocal);
      __m256i rest = _mm256_sub_epi32(x, _mm256_mullo_epi32(quotient, frequency));
      const __m256i exact = _mm256_cmpgt_epi32(frequency, rest);
      rest = _mm256_sub_epi32(rest, _mm256_andnot_si256(exact, frequency));
      quotient = _mm256_add_epi32(quotient, _mm256_add_epi32(exact, _mm256_set1_epi32(1)));
      __m256i slot = _mm256_add_epi32(_mm256_srli_epi32(interval, 16), rest);
      if (kAlias) {
        slot = _mm256_and_si256(
            low, _mm256_i32gather_epi32(reinterpret_cast<const int*>(table.slots.data()), slot, 2));
      }
      Store(states + lane,
            _mm256_or_si256(_mm256_slli_epi32(quotient, static_cast<int>(kRansBits)), slot));
    }
  }
  return words;
}

std::uint16_t* EncodeAvx2(const RansEncoderTable& table, unsigned lanes_log2, std::uint32_t* states,
                          std::span<const std::uint8_t> symbols, std::uint16_t* words) {
  if (lanes_log2 < 3) {
    return PortableRansKernels().encode(table, lanes_log2, states, symbols, words);
  }
  const std::size_t lanes = std::size_t{1} << lanes_log2;
  const std::size_t whole = symbols.size() >> lanes_log2 << lanes_log2;
  words = PortableRansKernels().encode(table, lanes_log2, states, symbols.subspan(whole), words);
  EncoderMemory memory;
  const Lookup lookup = FillMemory(table, memory);
  const auto encode = [&](auto with_alias) {
    constexpr bool kAlias = decltype(with_alias)::value;
    const auto groups = lookup == Lookup::kNarrow ? EncodeGroups<Lookup::kNarrow, kAlias>
                        : lookup == Lookup::kWide ? EncodeGroups<Lookup::kWide, kAlias>
                                                  : EncodeGroups<Lookup::kGather, kAlias>;
    return groups(table, memory, lanes, states, symbols.first(whole), words);
  };
  return table.use_alias ? encode(std::true_type{}) : encode(std::false_type{});
}

}  // namespace

const RansKernels* Avx2RansKernels() {
  static constexpr RansKernels kKernels = {DecodeAvx2, EncodeAvx2};
  return &kKernels;
}

}  // namespace kvserve

#else

namespace kvserve {

const RansKernels* Avx2RansKernels() {
  return nullptr;
}

}  // namespace kvserve

#endif
