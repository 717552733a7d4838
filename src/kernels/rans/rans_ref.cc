// The definition, one symbol at a time.
#include <algorithm>
#include <vector>

#include "base/try.h"
#include "kernels/rans/rans.h"

namespace kvserve {
namespace {

struct Interval {
  std::uint32_t start = 0;
  std::uint32_t frequency = 0;
};

Interval IntervalOf(const RansTable& table, std::uint8_t symbol) {
  Interval interval;
  for (std::size_t s = 0; s < symbol; ++s) interval.start += table.frequency[s];
  interval.frequency = table.frequency[symbol];
  return interval;
}

std::uint8_t SymbolAt(const RansTable& table, std::uint32_t slot) {
  std::uint32_t end = 0;
  std::size_t symbol = 0;
  while ((end += table.frequency[symbol]) <= slot) ++symbol;
  return static_cast<std::uint8_t>(symbol);
}

}  // namespace

void RansEncodeRef(std::span<const RansPart> parts, unsigned lanes_log2, ByteWriter& out) {
  std::vector<std::uint32_t> states(std::size_t{1} << lanes_log2, kRansLow);
  std::vector<std::uint16_t> words;  // last one first
  for (std::size_t p = parts.size(); p-- > 0;) {
    for (std::size_t i = parts[p].symbols.size(); i-- > 0;) {
      const auto [start, frequency] = IntervalOf(*parts[p].table, parts[p].symbols[i]);
      std::uint32_t& x = states[i % states.size()];
      if (x >= std::uint64_t{frequency} << 20) {
        words.push_back(static_cast<std::uint16_t>(x));
        x >>= 16;
      }
      x = x / frequency * kRansTotal + start + x % frequency;
    }
  }
  for (const std::uint32_t x : states) out.Put(x);
  for (std::size_t i = words.size(); i-- > 0;) out.Put(words[i]);
}

Status RansDecodeRef(std::span<const std::byte> in, unsigned lanes_log2,
                     std::span<const MutableRansPart> parts) {
  ByteReader reader(in);
  std::vector<std::uint32_t> states(std::size_t{1} << lanes_log2);
  for (std::uint32_t& x : states) {
    KVSERVE_ASSIGN(x, reader.Get<std::uint32_t>());
  }
  for (const auto& part : parts) {
    for (std::size_t i = 0; i < part.symbols.size(); ++i) {
      std::uint32_t& x = states[i % states.size()];
      const std::uint32_t slot = x % kRansTotal;
      part.symbols[i] = SymbolAt(*part.table, slot);
      const auto [start, frequency] = IntervalOf(*part.table, part.symbols[i]);
      x = frequency * (x / kRansTotal) + slot - start;
      if (x < kRansLow) {
        KVSERVE_ASSIGN(const auto word, reader.Get<std::uint16_t>());
        x = x << 16 | word;
      }
    }
  }
  const bool ended =
      std::all_of(states.begin(), states.end(), [](std::uint32_t x) { return x == kRansLow; });
  if (!ended || reader.remaining() > 0) {
    return MakeError(ErrorCode::kCorruptData,
                     "the entropy-coded stream does not end where it should");
  }
  return {};
}

}  // namespace kvserve
