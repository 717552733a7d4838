// Small alphabets: vectors of byte counters, one per symbol, eight symbols in a pass over a chunk
// that stays in the L1 cache; a counter is emptied before it can overflow. Large alphabets: one
// increment in memory per symbol.
#include "kernels/histogram/histogram.h"

#include <algorithm>
#include <numeric>

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/histogram/histogram.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Symbols first .. first + 7 in at most 255 vectors.
void CountEight(const std::uint8_t* symbols, std::size_t vectors, std::uint8_t first,
                std::uint64_t* counts) {
  const hn::ScalableTag<std::uint8_t> d;
  const hn::Repartition<std::uint64_t, decltype(d)> d64;
  hn::Vec<decltype(d)> wanted[8];
  hn::Vec<decltype(d)> counters[8];
  for (int s = 0; s < 8; ++s) {
    wanted[s] = hn::Set(d, static_cast<std::uint8_t>(first + s));
    counters[s] = hn::Zero(d);
  }
  for (std::size_t i = 0; i < vectors; ++i) {
    const auto v = hn::LoadU(d, symbols + i * hn::Lanes(d));
    for (int s = 0; s < 8; ++s) {  // a mask is -1 where it holds
      counters[s] = hn::Sub(counters[s], hn::VecFromMask(d, hn::Eq(v, wanted[s])));
    }
  }
  for (int s = 0; s < 8; ++s) {
    counts[first + s] += hn::GetLane(hn::SumOfLanes(d64, hn::SumsOf8(counters[s])));
  }
}

// Returns how many symbols, from the first, it has looked at.
std::size_t CountBulk(const std::uint8_t* symbols, std::size_t count, std::uint32_t alphabet,
                      std::uint64_t* counts) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<std::uint8_t>());
  std::size_t i = 0;
  while (i + lanes <= count) {
    const std::size_t vectors = std::min<std::size_t>((count - i) / lanes, 255);
    for (std::uint32_t first = 0; first < alphabet; first += 8) {
      CountEight(symbols + i, vectors, static_cast<std::uint8_t>(first), counts);
    }
    i += vectors * lanes;
  }
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace kvserve {
namespace {

HWY_EXPORT(CountBulk);

constexpr std::uint32_t kLargestSmallAlphabet = 32;

SymbolCounts CountInMemory(std::span<const std::uint8_t> symbols) {
  // Four tables, so that runs of one symbol do not wait for their own stores.
  std::array<std::array<std::uint32_t, 256>, 4> partial{};
  SymbolCounts counts{};
  constexpr std::size_t kChunk = std::size_t{1} << 30;  // partial counts cannot overflow
  for (; !symbols.empty(); symbols = symbols.subspan(std::min(kChunk, symbols.size()))) {
    const auto chunk = symbols.first(std::min(kChunk, symbols.size()));
    std::size_t i = 0;
    for (; i + 4 <= chunk.size(); i += 4) {
      for (std::size_t j = 0; j < 4; ++j) ++partial[j][chunk[i + j]];
    }
    for (; i < chunk.size(); ++i) ++partial[0][chunk[i]];
    for (auto& part : partial) {
      for (std::size_t s = 0; s < 256; ++s) counts[s] += part[s];
      part.fill(0);
    }
  }
  return counts;
}

}  // namespace

SymbolCounts CountSymbols(std::span<const std::uint8_t> symbols, std::uint32_t alphabet) {
  if (UseScalarKernels() || alphabet > kLargestSmallAlphabet) return CountInMemory(symbols);
  SymbolCounts counts{};
  std::size_t done =
      HWY_DYNAMIC_DISPATCH(CountBulk)(symbols.data(), symbols.size(), alphabet, counts.data());
  const auto counted = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  if (counted != done) return CountInMemory(symbols);  // some are outside of the alphabet
  for (; done < symbols.size(); ++done) ++counts[symbols[done]];
  return counts;
}

}  // namespace kvserve

#endif  // HWY_ONCE
