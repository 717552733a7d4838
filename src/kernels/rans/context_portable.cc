// Plain C++: renormalisation always loads or stores its word and moves the pointer or not, since a
// branch that depends on coded data would be mispredicted every few symbols.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "kernels/isa/isa.h"
#include "kernels/rans/context_kernels.h"

namespace kvserve {
namespace {

inline std::uint32_t LoadWord(const std::byte* from) {
  std::uint16_t word = 0;
  std::memcpy(&word, from, 2);
  return word;
}

std::size_t Decode(const ContextTables& tables, unsigned lanes_log2, std::uint32_t* states,
                   std::span<const std::uint8_t> indices, std::uint8_t* coded, RansWords& words) {
  const std::size_t lanes = std::size_t{1} << lanes_log2;
  const std::uint8_t* const symbols = tables.symbols.data();
  const std::uint32_t* const intervals = tables.intervals.data();
  const std::byte* next = words.next;
  std::size_t i = 0;
  while (i < indices.size() && next <= words.stop) {
    const std::size_t group = std::min(lanes, indices.size() - i);
    for (std::size_t lane = 0; lane < group; ++lane) {
      const std::size_t table = indices[i + lane];
      std::uint32_t x = states[lane];
      const std::uint32_t slot = x % kRansTotal;
      const std::uint8_t symbol = symbols[table * kRansTotal + slot];
      const std::uint32_t interval = intervals[table * 256 + symbol];
      coded[i + lane] = symbol;
      x = (interval & 0xFFFFU) * (x >> kRansBits) + slot - (interval >> 16);
      const std::uint32_t refill = x < kRansLow ? 1 : 0;
      states[lane] = x << 16 * refill | (LoadWord(next) & (0U - refill));
      next += 2 * refill;
    }
    i += group;
  }
  words.next = next;
  return i;
}

void Encode(const ContextTables& tables, unsigned lanes_log2, std::uint32_t* states,
            const ContextPart& part, std::uint16_t*& words, std::uint8_t*& escaped) {
  const std::size_t lanes = std::size_t{1} << lanes_log2;
  std::uint16_t* out = words;
  for (std::size_t end = part.symbols.size(); end > 0;) {
    const std::size_t begin = (end - 1) / lanes * lanes;
    for (std::size_t i = end; i-- > begin;) {
      const auto byte = static_cast<std::uint8_t>(part.symbols[i] + part.offset);
      const std::size_t table = std::size_t{part.indices[i]} * 256;
      std::uint32_t interval = tables.intervals[table + byte];
      if ((interval & 0xFFFFU) == 0 || byte == kContextEscape) {
        *--escaped = byte;
        interval = tables.intervals[table + kContextEscape];
      }
      const std::uint32_t frequency = interval & 0xFFFFU;
      std::uint32_t x = states[i - begin];
      const std::uint32_t emit = x >= frequency << 20 ? 1 : 0;
      out[-1] = static_cast<std::uint16_t>(x);
      out -= emit;
      x >>= 16 * emit;
      const std::uint32_t quotient = x / frequency;
      const std::uint32_t rest = x - quotient * frequency;
      states[i - begin] = (quotient << kRansBits) + (interval >> 16) + rest;
    }
    end = begin;
  }
  words = out;
}

ContextLength Measure(const ContextTables& tables, const ContextPart& part) {
  ContextLength sum;
  for (std::size_t i = 0; i < part.symbols.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(part.symbols[i] + part.offset);
    const std::uint32_t length = tables.lengths[std::size_t{part.indices[i]} * 256 + byte];
    sum.code_length += length & (kContextEscaped - 1U);
    sum.escapes += length >> 15;
  }
  return sum;
}

}  // namespace

const ContextKernels& PortableContextKernels() {
  static constexpr ContextKernels kKernels = {Decode, Encode, Measure};
  return kKernels;
}

const ContextKernels& ActiveContextKernels() {
  const std::string_view isa = ActiveIsa();
  const ContextKernels* const vectors = isa == "avx512" ? Avx512ContextKernels()
                                        : isa == "avx2" ? Avx2ContextKernels()
                                                        : nullptr;
  return vectors == nullptr ? PortableContextKernels() : *vectors;
}

}  // namespace kvserve
