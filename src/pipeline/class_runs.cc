#include "pipeline/class_runs.h"

#include <algorithm>
#include <numeric>

#include "pipeline/head_classes.h"
#include "pipeline/token_classes.h"

namespace kvserve {
namespace {

using Counts = std::array<std::uint32_t, 256>;  // [class]

Counts CountTokens(const SymbolPlane& plane) {
  Counts counts{};
  if (plane.token_classes.empty()) counts[kNominalClass] = plane.tokens;
  for (const std::uint8_t token_class : plane.token_classes) ++counts[token_class];
  return counts;
}

Counts CountHeads(const SymbolPlane& plane, std::uint32_t heads) {
  Counts counts{};
  if (plane.head_classes.empty()) counts[kHighHead] = heads;
  for (const std::uint8_t head_class : plane.head_classes) ++counts[head_class];
  return counts;
}

// visit(head class, token class) of each run, in order.
template <typename Visit>
void ForEachRun(const Counts& heads, const Counts& tokens, const Visit& visit) {
  for (std::uint8_t h = kHighHead; h <= kLowHead; ++h) {
    for (std::uint8_t t = 0; heads[h] > 0 && t < kTokenClasses; ++t) {
      if (tokens[t] > 0) visit(h, t);
    }
  }
}

// Indices of the elements of each class, one class after another; `begins` is where each starts.
std::span<const std::uint32_t> SortByClass(std::span<const std::uint8_t> classes, Counts counts,
                                           Counts& begins, Arena& arena) {
  std::uint32_t sum = 0;
  for (std::size_t c = 0; c < counts.size(); ++c) {
    begins[c] = sum;
    sum += counts[c];
  }
  const auto sorted = arena.Take<std::uint32_t>(sum);
  if (classes.empty()) {
    std::iota(sorted.begin(), sorted.end(), 0U);
    return sorted;
  }
  Counts next = begins;
  for (std::uint32_t i = 0; i < classes.size(); ++i) sorted[next[classes[i]]++] = i;
  return sorted;
}

// The plane's rows that are kept, and their classes in the same order.
std::span<const std::uint32_t> Keep(const SymbolPlane& plane, std::uint32_t count,
                                    std::span<std::uint8_t>& classes, Arena& arena) {
  const auto kept = arena.Take<std::uint32_t>(count);
  if (plane.token_classes.empty()) {
    std::iota(kept.begin(), kept.end(), 0U);
    return kept;
  }
  classes = arena.Take<std::uint8_t>(count);
  std::uint32_t next = 0;
  for (std::uint32_t row = 0; row < plane.tokens; ++row) {
    if (plane.token_classes[row] == kDroppedToken) continue;
    classes[next] = plane.token_classes[row];
    kept[next++] = row;
  }
  return kept;
}

}  // namespace

void LayRuns(const HeadLevels& levels, SymbolPlane& plane) {
  const auto heads =
      std::max<std::uint32_t>(1, static_cast<std::uint32_t>(plane.head_classes.size()));
  const std::uint32_t dim = plane.columns / heads;
  const Counts by_head = CountHeads(plane, heads);
  const Counts by_token = CountTokens(plane);
  plane.runs.clear();
  ForEachRun(by_head, by_token, [&](std::uint8_t h, std::uint8_t t) {
    plane.runs.push_back({by_token[t], by_head[h] * dim, LevelsOfClass(levels[h], t)});
  });
  if (plane.runs.empty()) plane.runs.push_back({0, plane.columns, levels[kHighHead]});
  const SymbolRun& first = plane.runs.front();
  plane.alphabet = first.alphabet;
  const bool all = first.tokens == plane.tokens && first.columns == plane.columns;
  if (plane.runs.size() == 1 && all) plane.runs.clear();
}

ClassRuns ListRuns(const HeadLevels& levels, const SymbolPlane& plane, std::uint32_t heads,
                   Arena& arena) {
  Counts by_token = CountTokens(plane);
  by_token[kDroppedToken] = 0;
  const Counts by_head = CountHeads(plane, heads);
  const std::uint32_t rows = std::accumulate(by_token.begin(), by_token.end(), 0U);
  std::span<std::uint8_t> classes;
  ClassRuns mixed;
  mixed.kept = Keep(plane, rows, classes, arena);
  Counts first_row{};
  Counts first_head{};
  const auto sorted_rows = SortByClass(classes, by_token, first_row, arena);
  const auto sorted_heads = SortByClass(plane.head_classes, by_head, first_head, arena);
  const auto runs = arena.Take<ClassedRun>(2 * std::size_t{kTokenClasses});
  std::size_t count = 0;
  ForEachRun(by_head, by_token, [&](std::uint8_t h, std::uint8_t t) {
    runs[count++] = {sorted_rows.subspan(first_row[t], by_token[t]),
                     sorted_heads.subspan(first_head[h], by_head[h]), LevelsOfClass(levels[h], t)};
  });
  mixed.runs = runs.first(count);
  return mixed;
}

}  // namespace kvserve
