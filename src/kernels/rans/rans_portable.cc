// Plain C++: a few small look-ups per symbol; renormalisation always loads or stores its word and
// moves the pointer or not, since a branch that depends on coded data would be mispredicted every
// few symbols. Division is an exact multiplication: with r = ceil(2^44 / f), floor(x * r / 2^44) is
// floor(x / f) for x < 2^32 and f < 2^12, and the product stays below 2^64 for x < f * 2^20.
#include <cstring>

#include "kernels/isa/isa.h"
#include "kernels/rans/rans_kernels.h"

namespace kvserve {
namespace {

inline std::uint32_t LoadWord(const std::byte* from) {
  std::uint16_t word = 0;
  std::memcpy(&word, from, 2);
  return word;
}

struct AliasStep {
  const std::uint32_t* divider;
  const std::uint32_t* entries[2];
  const std::uint8_t* symbols;
  unsigned shift;
  explicit AliasStep(const RansDecoderTable& table)
      : divider(table.alias.divider.data()),
        entries{table.alias.primary.data(), table.alias.alias.data()},
        symbols(table.alias.symbols.data()),
        shift(table.alias.buckets == 16 ? 8 : 7) {}
  std::uint8_t operator()(std::uint32_t& x) const {
    const std::uint32_t slot = x % kRansTotal;
    const std::uint32_t bucket = slot >> shift;
    const std::uint32_t entry = entries[slot >= divider[bucket] ? 1 : 0][bucket];
    const auto offset = slot + static_cast<std::uint32_t>(static_cast<std::int32_t>(entry) >> 17);
    x = (entry & 0xFFFU) * (x >> kRansBits) + offset;
    return symbols[entry >> 12 & 31U];
  }
};

struct IntervalStep {
  const std::uint32_t* slots;
  explicit IntervalStep(const RansDecoderTable& table) : slots(table.slots.data()) {}
  std::uint8_t operator()(std::uint32_t& x) const {
    const std::uint32_t entry = slots[x % kRansTotal];
    x = (entry & 0xFFFU) * (x >> kRansBits) + (entry >> 20);
    return static_cast<std::uint8_t>(entry >> 12);
  }
};

template <typename Step>
std::size_t DecodeWith(Step step, std::size_t lanes, std::uint32_t* states,
                       std::span<std::uint8_t> symbols, RansWords& words) {
  const std::byte* next = words.next;
  std::size_t i = 0;
  while (i < symbols.size() && next <= words.stop) {
    const std::size_t group = std::min(lanes, symbols.size() - i);
    for (std::size_t lane = 0; lane < group; ++lane) {
      std::uint32_t x = states[lane];
      symbols[i + lane] = step(x);
      const std::uint32_t refill = x < kRansLow ? 1 : 0;
      states[lane] = x << 16 * refill | (LoadWord(next) & (0U - refill));
      next += 2 * refill;
    }
    i += group;
  }
  words.next = next;
  return i;
}

std::size_t Decode(const RansDecoderTable& table, unsigned lanes_log2, std::uint32_t* states,
                   std::span<std::uint8_t> symbols, RansWords& words) {
  const std::size_t lanes = std::size_t{1} << lanes_log2;
  if (table.use_alias) return DecodeWith(AliasStep(table), lanes, states, symbols, words);
  return DecodeWith(IntervalStep(table), lanes, states, symbols, words);
}

struct EncoderEntry {
  std::uint64_t reciprocal = 0;
  std::uint32_t frequency = 0;
  std::uint32_t start = 0;
};

template <bool kAlias>
inline void EncodeSymbol(const EncoderEntry& entry, const std::uint16_t* slots,
                         std::uint32_t& state, std::uint16_t*& words) {
  std::uint32_t x = state;
  const std::uint32_t emit = x >= entry.frequency << 20 ? 1 : 0;
  words[-1] = static_cast<std::uint16_t>(x);
  words -= emit;
  x >>= 16 * emit;
  const auto quotient = static_cast<std::uint32_t>(x * entry.reciprocal >> 44);
  const std::uint32_t at = entry.start + (x - quotient * entry.frequency);
  state = quotient << kRansBits | (kAlias ? slots[at] : at);
}

template <bool kAlias>
std::uint16_t* EncodeWith(const RansEncoderTable& table, std::size_t lanes, std::uint32_t* states,
                          std::span<const std::uint8_t> symbols, std::uint16_t* words) {
  std::array<EncoderEntry, 256> entries;
  for (std::size_t s = 0; s < entries.size(); ++s) {
    const std::uint32_t frequency = table.interval[s] & 0xFFFFU;
    if (frequency == 0) continue;
    entries[s] = {((std::uint64_t{1} << 44) + frequency - 1) / frequency, frequency,
                  table.interval[s] >> 16};
  }
  for (std::size_t end = symbols.size(); end > 0;) {
    const std::size_t begin = (end - 1) / lanes * lanes;
    for (std::size_t i = end; i-- > begin;) {
      EncodeSymbol<kAlias>(entries[symbols[i]], table.slots.data(), states[i - begin], words);
    }
    end = begin;
  }
  return words;
}

std::uint16_t* Encode(const RansEncoderTable& table, unsigned lanes_log2, std::uint32_t* states,
                      std::span<const std::uint8_t> symbols, std::uint16_t* words) {
  const std::size_t lanes = std::size_t{1} << lanes_log2;
  if (table.use_alias) return EncodeWith<true>(table, lanes, states, symbols, words);
  return EncodeWith<false>(table, lanes, states, symbols, words);
}

}  // namespace

const RansKernels& PortableRansKernels() {
  static constexpr RansKernels kKernels = {Decode, Encode};
  return kKernels;
}

const RansKernels& ActiveRansKernels() {
  const std::string_view isa = ActiveIsa();
  const RansKernels* vectors = nullptr;
  if (isa == "avx512") vectors = Avx512RansKernels();
  if (isa == "avx2") vectors = Avx2RansKernels();
  return vectors == nullptr ? PortableRansKernels() : *vectors;
}

}  // namespace kvserve
