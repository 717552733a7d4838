// Frequencies and starts are looked up in registers, and so is the slot of an alias table: it is
// the place shifted by what its run says, and the run is found by binary search in at most 64
// begins, 32 places at a time. (Gathering the slots from a table of 4096 halves the speed on
// Zen 5.) Quotients are estimated in floats, every step rounded towards zero: the estimate is short
// by less than 2^20 * 3 * 2^-23 before it is cut, so the quotient is it or the next.
#include "kernels/rans/rans_x86.h"

#if KVSERVE_RANS_X86

#include <immintrin.h>

#include <algorithm>

namespace kvserve {
namespace {

constexpr int kTowardsZero = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;

enum class Lookup : std::uint8_t { kNarrow, kWide, kGather };

// Tables in memory from which the registers are loaded: intervals at the symbol's number modulo 16
// or 32, levels of the search, shifts of even and odd runs.
struct Tables {
  alignas(64) std::array<std::uint32_t, 32> interval{};
  alignas(64) std::array<std::array<std::uint16_t, 32>, 6> level{};
  alignas(64) std::array<std::array<std::uint16_t, 32>, 2> shift{};
};

struct Registers {
  __m512i frequency[2];
  __m512i start[2];
  __m512 inverse[2];
  __m512i level[6];
  __m512i shift[2];
  const std::uint32_t* intervals;  // in memory, [symbol]
};

// Narrow: runs are searched in steps of 16, 8, 4, 2, 1. Wide: in pairs of runs likewise, and then
// within the pair.
void FillSearch(const RansAliasRuns& runs, bool wide, Tables& tables) {
  const std::size_t scale = wide ? 2 : 1;
  for (std::size_t i = 0; i < 32; ++i) {
    for (std::size_t l = 0; l < 5; ++l) {
      const std::size_t step = 16U >> l;
      tables.level[l][i] = runs.begin[((i & ~(2 * step - 1)) + step) * scale];
    }
    tables.level[5][i] = wide ? runs.begin[2 * i + 1] : 0;
    tables.shift[0][i] = runs.shift[scale * i];
    tables.shift[1][i] = wide ? runs.shift[2 * i + 1] : 0;
  }
}

KVSERVE_AVX512 inline Registers Load(const Tables& tables, const std::uint32_t* intervals) {
  Registers r;
  r.intervals = intervals;
  for (std::size_t half = 0; half < 2; ++half) {
    const __m512i interval = _mm512_load_si512(&tables.interval[16 * half]);
    r.frequency[half] = _mm512_and_si512(interval, _mm512_set1_epi32(0xFFFF));
    r.start[half] = _mm512_srli_epi32(interval, 16);
    r.inverse[half] = _mm512_div_round_ps(_mm512_set1_ps(1.0F),
                                          _mm512_cvtepi32_ps(r.frequency[half]), kTowardsZero);
    r.shift[half] = _mm512_load_si512(tables.shift[half].data());
  }
  for (std::size_t l = 0; l < 6; ++l) r.level[l] = _mm512_load_si512(tables.level[l].data());
  return r;
}

template <Lookup kLookup>
KVSERVE_AVX512 inline __m512i Find(const __m512i (&table)[2], __m512i symbols) {
  if (kLookup == Lookup::kNarrow) return _mm512_permutexvar_epi32(symbols, table[0]);
  return _mm512_permutex2var_epi32(table[0], symbols, table[1]);
}

// A state cut into quotient and place, which is start + remainder.
struct Cut {
  __m512i quotient;
  __m512i place;
};

// Stores the words of the live lanes whose states are too large, those of higher lanes at higher
// addresses. By a masked store: compress-to-memory is slow on some machines.
KVSERVE_AVX512 inline __m512i Emit(__m512i x, __m512i frequency, __mmask16 live,
                                   std::uint16_t*& words) {
  const __mmask16 emit = _mm512_mask_cmpge_epu32_mask(live, x, _mm512_slli_epi32(frequency, 20));
  const auto count = static_cast<unsigned>(_mm_popcnt_u32(emit));
  words -= count;
  _mm256_mask_storeu_epi16(words, static_cast<__mmask16>(_bzhi_u32(0xFFFF, count)),
                           _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(emit, x)));
  return _mm512_mask_srli_epi32(x, emit, x, 16);
}

template <Lookup kLookup>
KVSERVE_AVX512 inline Cut CutState(const Registers& r, __m512i x, __m128i bytes, __mmask16 live,
                                   std::uint16_t*& words) {
  const __m512i symbols = _mm512_cvtepu8_epi32(bytes);
  __m512i frequency;
  __m512i start;
  if (kLookup == Lookup::kGather) {
    const __m512i interval = _mm512_i32gather_epi32(symbols, r.intervals, 4);
    frequency = _mm512_and_si512(interval, _mm512_set1_epi32(0xFFFF));
    start = _mm512_srli_epi32(interval, 16);
  } else {
    frequency = Find<kLookup>(r.frequency, symbols);
    start = Find<kLookup>(r.start, symbols);
  }
  x = Emit(x, frequency, live, words);
  const __m512 state = _mm512_cvt_roundepu32_ps(x, kTowardsZero);
  __m512 ratio;
  if (kLookup == Lookup::kGather) {
    ratio = _mm512_div_round_ps(state, _mm512_cvtepi32_ps(frequency), kTowardsZero);
  } else if (kLookup == Lookup::kNarrow) {
    ratio = _mm512_mul_round_ps(state, _mm512_permutexvar_ps(symbols, r.inverse[0]), kTowardsZero);
  } else {
    ratio = _mm512_mul_round_ps(state, _mm512_permutex2var_ps(r.inverse[0], symbols, r.inverse[1]),
                                kTowardsZero);
  }
  Cut cut;
  cut.quotient = _mm512_cvttps_epu32(ratio);
  __m512i rest = _mm512_sub_epi32(x, _mm512_mullo_epi32(cut.quotient, frequency));
  const __mmask16 one_short = _mm512_cmpge_epu32_mask(rest, frequency);
  rest = _mm512_mask_sub_epi32(rest, one_short, rest, frequency);
  cut.quotient = _mm512_mask_add_epi32(cut.quotient, one_short, cut.quotient, _mm512_set1_epi32(1));
  cut.place = _mm512_add_epi32(start, rest);
  return cut;
}

// Slots of 32 places, 16 bits each.
template <Lookup kLookup>
KVSERVE_AVX512 inline __m512i SlotsOf(const Registers& r, __m512i places) {
  if (kLookup == Lookup::kGather) return places;
  __m512i run =
      _mm512_maskz_set1_epi16(_mm512_cmpge_epu16_mask(places, r.level[0]), std::int16_t{16});
  for (int l = 1; l < 5; ++l) {
    const __mmask32 beyond =
        _mm512_cmpge_epu16_mask(places, _mm512_permutexvar_epi16(run, r.level[l]));
    run = _mm512_mask_add_epi16(run, beyond, run,
                                _mm512_set1_epi16(static_cast<std::int16_t>(16 >> l)));
  }
  __m512i shift = _mm512_permutexvar_epi16(run, r.shift[0]);
  if (kLookup == Lookup::kWide) {
    const __mmask32 odd =
        _mm512_cmpge_epu16_mask(places, _mm512_permutexvar_epi16(run, r.level[5]));
    shift = _mm512_mask_permutexvar_epi16(shift, odd, run, r.shift[1]);
  }
  return _mm512_add_epi16(places, shift);
}

KVSERVE_AVX512 inline __m512i Join(__m512i quotient, __m512i slot) {
  return _mm512_or_si512(_mm512_slli_epi32(quotient, static_cast<int>(kRansBits)), slot);
}

template <Lookup kLookup, int kVectors>
KVSERVE_AVX512 std::uint16_t* EncodeGroups(const Registers& registers, std::uint32_t* states,
                                           std::span<const std::uint8_t> symbols,
                                           std::uint16_t* words) {
  constexpr std::size_t kGroup = 16 * kVectors;
  const Registers r = registers;
  const __m512i low = _mm512_set1_epi32(0xFFFF);
  __m512i x[kVectors];
  Cut cuts[kVectors];
  for (int v = 0; v < kVectors; ++v) x[v] = _mm512_load_si512(states + 16 * v);
  for (std::size_t i = symbols.size(); i > 0; i -= kGroup) {
    const std::uint8_t* const group = symbols.data() + i - kGroup;
    for (int v = kVectors - 1; v >= 0; --v) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(group + 16 * v));
      cuts[v] = CutState<kLookup>(r, x[v], bytes, 0xFFFF, words);
    }
    for (int v = 0; v < kVectors; v += 2) {
      if (kVectors == 1) {
        x[0] = Join(cuts[0].quotient, _mm512_and_si512(SlotsOf<kLookup>(r, cuts[0].place), low));
        continue;
      }
      const Cut& even = cuts[v];
      const Cut& odd = cuts[(v + 1) % kVectors];
      const __m512i slots =
          SlotsOf<kLookup>(r, _mm512_or_si512(even.place, _mm512_slli_epi32(odd.place, 16)));
      x[v] = Join(even.quotient, _mm512_and_si512(slots, low));
      x[(v + 1) % kVectors] = Join(odd.quotient, _mm512_srli_epi32(slots, 16));
    }
  }
  for (int v = 0; v < kVectors; ++v) _mm512_store_si512(states + 16 * v, x[v]);
  return words;
}

// The last group, of fewer symbols than lanes.
template <Lookup kLookup>
KVSERVE_AVX512 std::uint16_t* EncodeRest(const Registers& r, std::uint32_t* states,
                                         std::span<const std::uint8_t> symbols,
                                         std::uint16_t* words) {
  for (std::size_t end = symbols.size(); end > 0;) {
    const std::size_t begin = (end - 1) / 16 * 16;
    const auto live = static_cast<__mmask16>(_bzhi_u32(0xFFFF, static_cast<unsigned>(end - begin)));
    const __m512i x = _mm512_load_si512(states + begin);
    const __m128i bytes = _mm_maskz_loadu_epi8(live, symbols.data() + begin);
    const Cut cut = CutState<kLookup>(r, x, bytes, live, words);
    const __m512i slots =
        _mm512_and_si512(SlotsOf<kLookup>(r, cut.place), _mm512_set1_epi32(0xFFFF));
    _mm512_store_si512(states + begin, _mm512_mask_mov_epi32(x, live, Join(cut.quotient, slots)));
    end = begin;
  }
  return words;
}

template <Lookup kLookup>
KVSERVE_AVX512 std::uint16_t* EncodeWith(const Registers& r, unsigned lanes_log2,
                                         std::uint32_t* states,
                                         std::span<const std::uint8_t> symbols,
                                         std::uint16_t* words) {
  constexpr auto kGroups = std::array{EncodeGroups<kLookup, 1>, EncodeGroups<kLookup, 2>,
                                      EncodeGroups<kLookup, 4>, EncodeGroups<kLookup, 8>};
  const std::size_t whole = symbols.size() >> lanes_log2 << lanes_log2;
  words = EncodeRest<kLookup>(r, states, symbols.subspan(whole), words);
  return kGroups[lanes_log2 - 4](r, states, symbols.first(whole), words);
}

// Places each interval at its key modulo `size`; false when two meet.
template <typename Key>
bool PlaceIntervals(const RansEncoderTable& table, std::size_t size, const Key& key,
                    Tables& tables) {
  tables.interval.fill(0);
  for (std::size_t s = 0; s < 256; ++s) {
    if (table.interval[s] % 0x10000 == 0) continue;
    std::uint32_t& place = tables.interval[key(s) % size];
    if (place != 0) return false;
    place = table.interval[s];
  }
  return true;
}

// Symbols that meet modulo 32 are renamed to their ranks, some at a time.
template <Lookup kLookup>
KVSERVE_AVX512 std::uint16_t* EncodeRenamed(const RansEncoderTable& table, Tables& tables,
                                            unsigned lanes_log2, std::uint32_t* states,
                                            std::span<const std::uint8_t> symbols,
                                            std::uint16_t* words) {
  std::array<std::uint8_t, 256> ranks{};
  std::uint8_t next = 0;
  for (std::size_t s = 0; s < 256; ++s) {
    if (table.interval[s] % 0x10000 != 0) ranks[s] = next++;
  }
  PlaceIntervals(
      table, 32, [&](std::size_t s) { return ranks[s]; }, tables);
  const Registers r = Load(tables, nullptr);
  constexpr std::size_t kChunk = 16 * kMaxRansLanes;
  std::array<std::uint8_t, kChunk> renamed;
  for (std::size_t end = symbols.size(); end > 0;) {
    const std::size_t begin = (end - 1) / kChunk * kChunk;
    for (std::size_t i = begin; i < end; ++i) renamed[i - begin] = ranks[symbols[i]];
    words =
        EncodeWith<kLookup>(r, lanes_log2, states, std::span(renamed).first(end - begin), words);
    end = begin;
  }
  return words;
}

}  // namespace

KVSERVE_AVX512 std::uint16_t* RansEncodeAvx512(const RansEncoderTable& table, unsigned lanes_log2,
                                               std::uint32_t* states,
                                               std::span<const std::uint8_t> symbols,
                                               std::uint16_t* words) {
  if (lanes_log2 < 4) {
    return PortableRansKernels().encode(table, lanes_log2, states, symbols, words);
  }
  Tables tables;
  if (!table.use_alias) {
    return EncodeWith<Lookup::kGather>(Load(tables, table.interval.data()), lanes_log2, states,
                                       symbols, words);
  }
  const auto itself = [](std::size_t s) { return s; };
  const bool narrow = !table.wide && PlaceIntervals(table, 16, itself, tables);
  FillSearch(table.runs, !narrow, tables);
  if (narrow) {
    return EncodeWith<Lookup::kNarrow>(Load(tables, nullptr), lanes_log2, states, symbols, words);
  }
  if (PlaceIntervals(table, 32, itself, tables)) {
    return EncodeWith<Lookup::kWide>(Load(tables, nullptr), lanes_log2, states, symbols, words);
  }
  return EncodeRenamed<Lookup::kWide>(table, tables, lanes_log2, states, symbols, words);
}

}  // namespace kvserve

#endif
