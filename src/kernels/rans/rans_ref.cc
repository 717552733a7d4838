// The definition, one symbol at a time.
#include <algorithm>
#include <array>
#include <vector>

#include "base/try.h"
#include "kernels/rans/rans.h"

namespace kvserve {
namespace {

// What each slot stands for.
struct Slots {
  std::array<std::uint8_t, kRansTotal> symbol{};
  std::array<std::uint32_t, kRansTotal> offset{};
  std::vector<std::vector<std::uint32_t>> places;  // [symbol][offset] slot
};

// Offsets count the slots of a symbol in ascending order, whatever the layout.
Slots Counted(const std::array<std::uint8_t, kRansTotal>& symbols) {
  Slots slots{symbols, {}, std::vector<std::vector<std::uint32_t>>(256)};
  for (std::uint32_t slot = 0; slot < kRansTotal; ++slot) {
    auto& places = slots.places[symbols[slot]];
    slots.offset[slot] = static_cast<std::uint32_t>(places.size());
    places.push_back(slot);
  }
  return slots;
}

Slots IntervalSlots(const RansTable& table) {
  std::array<std::uint8_t, kRansTotal> symbols{};
  std::size_t slot = 0;
  for (std::size_t s = 0; s < 256; ++s) {
    for (std::uint32_t i = 0; i < table[s]; ++i) symbols[slot++] = static_cast<std::uint8_t>(s);
  }
  return Counted(symbols);
}

Slots AliasSlots(const RansTable& table) {
  std::vector<std::uint32_t> rest;
  std::vector<std::uint8_t> occurring;
  for (std::size_t s = 0; s < 256; ++s) {
    if (table[s] == 0) continue;
    occurring.push_back(static_cast<std::uint8_t>(s));
    rest.push_back(table[s]);
  }
  const std::size_t buckets = occurring.size() <= 16 ? 16 : 32;
  const std::uint32_t width = static_cast<std::uint32_t>(kRansTotal / buckets);
  rest.resize(buckets);
  std::vector<std::size_t> alias(buckets);
  std::vector<std::size_t> low;
  std::vector<std::size_t> high;
  for (std::size_t b = 0; b < buckets; ++b) (rest[b] < width ? low : high).push_back(b);
  while (!low.empty()) {
    const std::size_t poor = low.back();
    const std::size_t rich = high.back();
    low.pop_back();
    alias[poor] = rich;
    rest[rich] -= width - rest[poor];
    if (rest[rich] >= width) continue;
    high.pop_back();
    low.push_back(rich);
  }
  std::array<std::uint8_t, kRansTotal> symbols{};
  for (std::size_t slot = 0; slot < kRansTotal; ++slot) {
    const std::size_t b = slot / width;
    symbols[slot] = occurring[slot % width < rest[b] ? b : alias[b]];
  }
  return Counted(symbols);
}

Slots SlotsOf(const RansTable& table, RansLayout layout) {
  return UsesAlias(table, layout) ? AliasSlots(table) : IntervalSlots(table);
}

}  // namespace

void RansEncodeRef(std::span<const RansPart> parts, unsigned lanes_log2, RansLayout layout,
                   ByteWriter& out) {
  std::vector<std::uint32_t> states(std::size_t{1} << lanes_log2, kRansLow);
  std::vector<std::uint16_t> words;  // last one first
  for (std::size_t p = parts.size(); p-- > 0;) {
    const Slots slots = SlotsOf(*parts[p].table, layout);
    for (std::size_t i = parts[p].symbols.size(); i-- > 0;) {
      const std::uint8_t symbol = parts[p].symbols[i];
      const std::uint32_t frequency = (*parts[p].table)[symbol];
      std::uint32_t& x = states[i % states.size()];
      if (x >= std::uint64_t{frequency} << 20) {
        words.push_back(static_cast<std::uint16_t>(x));
        x >>= 16;
      }
      x = x / frequency * kRansTotal + slots.places[symbol][x % frequency];
    }
  }
  for (const std::uint32_t x : states) out.Put(x);
  for (std::size_t i = words.size(); i-- > 0;) out.Put(words[i]);
}

Status RansDecodeRef(std::span<const std::byte> in, unsigned lanes_log2, RansLayout layout,
                     std::span<const MutableRansPart> parts) {
  ByteReader reader(in);
  std::vector<std::uint32_t> states(std::size_t{1} << lanes_log2);
  for (std::uint32_t& x : states) {
    KVSERVE_ASSIGN(x, reader.Get<std::uint32_t>());
  }
  for (const auto& part : parts) {
    const Slots slots = SlotsOf(*part.table, layout);
    for (std::size_t i = 0; i < part.symbols.size(); ++i) {
      std::uint32_t& x = states[i % states.size()];
      const std::uint32_t slot = x % kRansTotal;
      part.symbols[i] = slots.symbol[slot];
      x = (*part.table)[slots.symbol[slot]] * (x / kRansTotal) + slots.offset[slot];
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
