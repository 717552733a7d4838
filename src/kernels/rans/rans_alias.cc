#include "kernels/rans/rans_alias.h"

#include <algorithm>

namespace kvserve {
namespace {

std::size_t Occurring(const RansTable& table) {
  return 256 - static_cast<std::size_t>(std::count(table.begin(), table.end(), 0));
}

// Frequencies that are still to be placed, and who shares each bucket.
struct Buckets {
  std::array<std::uint32_t, kMaxAliasSymbols> rest{};
  std::array<std::uint8_t, kMaxAliasSymbols> alias{};
};

// Every bucket that its own symbol does not fill is filled up by a symbol that has too much.
void Share(unsigned buckets, std::uint32_t width, Buckets& shares) {
  std::array<std::uint8_t, kMaxAliasSymbols> low{};
  std::array<std::uint8_t, kMaxAliasSymbols> high{};
  std::size_t lows = 0;
  std::size_t highs = 0;
  for (unsigned i = 0; i < buckets; ++i) {
    const auto b = static_cast<std::uint8_t>(i);
    shares.alias[b] = b;
    if (shares.rest[b] < width) {
      low[lows++] = b;
    } else {
      high[highs++] = b;
    }
  }
  while (lows > 0) {
    const std::uint8_t poor = low[--lows];
    const std::uint8_t rich = high[highs - 1];
    shares.alias[poor] = rich;
    shares.rest[rich] -= width - shares.rest[poor];
    if (shares.rest[rich] >= width) continue;
    --highs;
    low[lows++] = rich;
  }
  for (std::size_t i = 0; i < highs; ++i) shares.rest[high[i]] = width;
}

struct Run {
  std::uint32_t length = 0;
  std::uint32_t slot = 0;
  std::uint8_t index = 0;
};

// Two runs per bucket, in ascending order of slots: below the divider, and from it on.
template <typename Visit>
void ForEachRun(const RansAlias& alias, const Visit& visit) {
  const std::uint32_t width = kRansTotal / alias.buckets;
  for (std::uint32_t b = 0; b < alias.buckets; ++b) {
    const std::uint32_t divider = alias.divider[b];
    visit(Run{divider - b * width, b * width, static_cast<std::uint8_t>(b)});
    visit(Run{(b + 1) * width - divider, divider,
              static_cast<std::uint8_t>(alias.alias[b] >> 12 & 31U)});
  }
}

}  // namespace

bool UsesAlias(const RansTable& table, RansLayout layout) {
  return layout == RansLayout::kAlias && Occurring(table) <= kMaxAliasSymbols;
}

RansAlias BuildAlias(const RansTable& table) {
  RansAlias result;
  Buckets shares;
  std::array<std::uint32_t, kMaxAliasSymbols> frequency{};
  std::size_t symbols = 0;
  for (std::size_t s = 0; s < table.size(); ++s) {
    if (table[s] == 0) continue;
    result.symbols[symbols] = static_cast<std::uint8_t>(s);
    frequency[symbols++] = table[s];
  }
  result.buckets = symbols <= 16 ? 16 : 32;
  const std::uint32_t width = kRansTotal / result.buckets;
  shares.rest = frequency;
  Share(result.buckets, width, shares);
  std::array<std::uint32_t, kMaxAliasSymbols> offset{};  // of a symbol's next slot
  const auto entry = [&](std::uint32_t index, std::uint32_t slot) {
    return frequency[index] | index << 12 | (offset[index] - slot) << 17;
  };
  for (std::uint32_t b = 0; b < result.buckets; ++b) {
    const std::uint32_t first = b * width;
    const std::uint32_t other = shares.alias[b];
    result.divider[b] = first + shares.rest[b];
    result.primary[b] = entry(b, first);
    offset[b] += shares.rest[b];
    result.alias[b] = entry(other, result.divider[b]);
    offset[other] += width - shares.rest[b];
  }
  return result;
}

RansAliasRuns RunsOf(const RansAlias& alias) {
  RansAliasRuns runs;
  runs.begin.fill(UINT16_MAX);
  std::array<std::uint8_t, kMaxAliasSymbols + 1> place{};  // [index] its first run
  std::array<std::uint32_t, kMaxAliasSymbols + 1> next{};  // [index] p of its next run
  ForEachRun(alias, [&](const Run& run) {
    if (run.length == 0) return;
    ++place[run.index + 1U];
    next[run.index + 1U] += run.length;
    ++runs.count;
  });
  for (std::size_t i = 1; i <= kMaxAliasSymbols; ++i) {
    place[i] = static_cast<std::uint8_t>(place[i] + place[i - 1]);
    next[i] += next[i - 1];
  }
  ForEachRun(alias, [&](const Run& run) {
    if (run.length == 0) return;
    const std::size_t at = place[run.index]++;
    runs.begin[at] = static_cast<std::uint16_t>(next[run.index]);
    runs.shift[at] = static_cast<std::uint16_t>(run.slot - next[run.index]);
    next[run.index] += run.length;
  });
  return runs;
}

}  // namespace kvserve
