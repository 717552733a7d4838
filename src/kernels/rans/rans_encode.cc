// Division by frequencies is a multiplication with a 64-bit reciprocal, exact for 32-bit states;
// renormalisation always stores its word and moves the pointer or not, since a branch that depends
// on coded data would be mispredicted every few symbols.
#include <array>
#include <memory>

#include "kernels/rans/rans.h"
#include "kernels/rans/rans_avx512.h"

namespace kvserve {
namespace {

constexpr std::size_t kMaxLanes = std::size_t{1} << kMaxRansLanesLog2;

struct EncoderEntry {
  std::uint64_t reciprocal = 0;
  std::uint32_t limit = 0;  // states from here on emit a word first
  std::uint32_t bias = 0;
  std::uint32_t complement = 0;  // kRansTotal - frequency
};
using EncoderTable = std::array<EncoderEntry, 256>;

void FillTable(const RansTable& table, EncoderTable& entries) {
  std::uint32_t start = 0;
  for (std::size_t s = 0; s < 256; ++s) {
    const std::uint32_t frequency = table.frequency[s];
    if (frequency == 0) continue;
    EncoderEntry& entry = entries[s];
    entry.limit = frequency << 20;
    entry.complement = kRansTotal - frequency;
    // x / 1 would need 2^64: the quotient comes out one too small, which the bias makes up for.
    entry.reciprocal = frequency == 1 ? UINT64_MAX : UINT64_MAX / frequency + 1;
    entry.bias = frequency == 1 ? start + kRansTotal - 1 : start;
    start += frequency;
  }
}

inline void EncodeSymbol(const EncoderEntry& entry, std::uint32_t& state, std::uint16_t*& words) {
  std::uint32_t x = state;
  const std::uint32_t emit = x >= entry.limit ? 1 : 0;
  words[-1] = static_cast<std::uint16_t>(x);
  words -= emit;
  x >>= 16 * emit;
  const auto quotient =
      static_cast<std::uint32_t>((static_cast<unsigned __int128>(x) * entry.reciprocal) >> 64);
  state = x + entry.bias + quotient * entry.complement;
}

// Whole groups of lanes.
template <unsigned kLanesLog2>
std::uint16_t* EncodeGroups(std::span<const std::uint8_t> symbols, const EncoderTable& entries,
                            std::uint32_t* states, std::uint16_t* words) {
  constexpr std::size_t kLanes = std::size_t{1} << kLanesLog2;
  for (std::size_t i = symbols.size(); i > 0; i -= kLanes) {
    const std::uint8_t* group = symbols.data() + i - kLanes;
    for (std::size_t lane = kLanes; lane-- > 0;) {
      EncodeSymbol(entries[group[lane]], states[lane], words);
    }
  }
  return words;
}

using EncodeFunction = std::uint16_t* (*)(std::span<const std::uint8_t>, const EncoderTable&,
                                          std::uint32_t*, std::uint16_t*);
constexpr EncodeFunction kEncode[] = {EncodeGroups<0>, EncodeGroups<1>, EncodeGroups<2>,
                                      EncodeGroups<3>, EncodeGroups<4>, EncodeGroups<5>};

// Coding a symbol multiplies the state by at most 17/16 * kRansTotal / frequency, so by less than
// 2^12.1, and every word takes 16 bits away.
std::size_t WordBound(std::span<const RansPart> parts) {
  std::uint64_t symbols = 0;
  for (const auto& part : parts) symbols += part.symbols.size();
  return symbols * 121 / 160 + kMaxLanes + 1;
}

// The part's incomplete last group, then whole groups down to its start.
std::uint16_t* EncodePart(const RansPart& part, unsigned lanes_log2, const EncoderTable& entries,
                          std::uint32_t* states, std::uint16_t* words) {
  const std::size_t whole = part.symbols.size() >> lanes_log2 << lanes_log2;
  for (std::size_t i = part.symbols.size(); i-- > whole;) {
    EncodeSymbol(entries[part.symbols[i]], states[i - whole], words);
  }
  const auto groups = part.symbols.first(whole);
  if (UseRansAvx512(lanes_log2)) return RansEncodeAvx512(groups, *part.table, states, words);
  return kEncode[lanes_log2](groups, entries, states, words);
}

}  // namespace

void RansEncode(std::span<const RansPart> parts, unsigned lanes_log2, ByteWriter& out) {
  const std::size_t lanes = std::size_t{1} << lanes_log2;
  std::array<std::uint32_t, kMaxLanes> states;
  states.fill(kRansLow);
  // Not initialised: most of it is never touched.
  const std::size_t bound = WordBound(parts);
  const auto buffer = std::make_unique_for_overwrite<std::uint16_t[]>(bound);
  std::uint16_t* const end = buffer.get() + bound;
  std::uint16_t* words = end;
  EncoderTable entries{};
  const RansTable* filled = nullptr;
  for (std::size_t p = parts.size(); p-- > 0;) {
    if (parts[p].table != filled) FillTable(*parts[p].table, entries);
    filled = parts[p].table;
    words = EncodePart(parts[p], lanes_log2, entries, states.data(), words);
  }
  out.PutBytes(std::as_bytes(std::span(states).first(lanes)));
  out.PutBytes(std::as_bytes(std::span(words, end)));
}

}  // namespace kvserve
