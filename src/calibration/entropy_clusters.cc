// Classes are doubled until there are enough: each is cut in half at the median of its members'
// entropies or of their mean symbols, whichever leaves fewer bits (planes differ in how wide their
// symbols spread and in where they lie), then some rounds of k-means follow.
#include "calibration/entropy_clusters.h"

#include <algorithm>
#include <limits>

#include "kernels/histogram/histogram.h"
#include "kernels/rans/rans_table.h"

namespace kvserve {
namespace {

constexpr std::size_t kMaxPlanes = 8192;
constexpr int kRounds = 4;      // after each doubling
constexpr int kLastRounds = 8;  // with all classes
constexpr std::uint64_t kWorthShare = 4096;

using Costs = std::vector<std::uint32_t>;  // [symbol], 1/65536 bit

// The counted planes, and which class each belongs to.
struct Members {
  std::uint32_t alphabet = 0;
  std::vector<std::span<const std::uint32_t>> planes;
  std::vector<std::uint64_t> entropy;      // 1/65536 bit per symbol
  std::vector<std::uint64_t> mean_symbol;  // times 65536
  std::vector<std::uint32_t> class_of;
};

SymbolCounts Widened(std::span<const std::uint32_t> counts) {
  SymbolCounts wide{};
  std::copy(counts.begin(), counts.end(), wide.begin());
  return wide;
}

Members TakeMembers(const SymbolHistograms& histograms) {
  Members members;
  members.alphabet = histograms.alphabet;
  const std::size_t planes = histograms.planes();
  const std::size_t taken = std::min(planes, kMaxPlanes);
  for (std::size_t i = 0; i < taken; ++i) {
    const auto counts = histograms.plane(i * planes / taken);
    const SymbolCounts wide = Widened(counts);
    std::uint64_t total = 0;
    std::uint64_t sum = 0;
    for (std::size_t s = 0; s < counts.size(); ++s) {
      total += counts[s];
      sum += std::uint64_t{counts[s]} * s;
    }
    members.planes.push_back(counts);
    members.mean_symbol.push_back((sum << 16) / total);
    members.entropy.push_back(CodeLength(wide, NormaliseCounts(wide)) / total);
  }
  members.class_of.assign(taken, 0);
  return members;
}

Costs CostsOf(const RansTable& table, std::uint32_t alphabet) {
  Costs costs(alphabet);
  SymbolCounts one{};
  for (std::uint32_t s = 0; s < alphabet; ++s) {
    one[s] = 1;
    costs[s] = static_cast<std::uint32_t>(CodeLength(one, table));
    one[s] = 0;
  }
  return costs;
}

std::uint64_t Cost(std::span<const std::uint32_t> counts, const Costs& costs) {
  std::uint64_t sum = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) sum += std::uint64_t{counts[s]} * costs[s];
  return sum;
}

// Tables of classes that have members; the others vanish, and numbers close up.
std::vector<RansTable> TablesOf(Members& members, std::size_t classes) {
  std::vector<SymbolCounts> sums(classes);
  std::vector<std::size_t> sizes(classes);
  for (std::size_t i = 0; i < members.planes.size(); ++i) {
    auto& sum = sums[members.class_of[i]];
    for (std::uint32_t s = 0; s < members.alphabet; ++s) sum[s] += members.planes[i][s];
    ++sizes[members.class_of[i]];
  }
  std::vector<RansTable> tables;
  std::vector<std::uint32_t> number(classes);
  for (std::size_t k = 0; k < classes; ++k) {
    if (sizes[k] == 0) continue;
    number[k] = static_cast<std::uint32_t>(tables.size());
    for (std::uint32_t s = 0; s < members.alphabet; ++s) ++sums[k][s];  // no symbol without a code
    tables.push_back(NormaliseCounts(sums[k]));
  }
  for (auto& k : members.class_of) k = number[k];
  return tables;
}

// [class][plane]
std::vector<std::vector<std::uint64_t>> CostMatrix(const Members& members,
                                                   const std::vector<RansTable>& tables) {
  std::vector<std::vector<std::uint64_t>> matrix;
  for (const RansTable& table : tables) {
    const Costs costs = CostsOf(table, members.alphabet);
    auto& row = matrix.emplace_back();
    for (const auto& plane : members.planes) row.push_back(Cost(plane, costs));
  }
  return matrix;
}

// One round of k-means; gives the tables of the new classes.
std::vector<RansTable> Round(Members& members, const std::vector<RansTable>& tables) {
  const auto matrix = CostMatrix(members, tables);
  for (std::size_t i = 0; i < members.planes.size(); ++i) {
    std::uint32_t best = 0;
    for (std::uint32_t k = 1; k < tables.size(); ++k) {
      if (matrix[k][i] < matrix[best][i]) best = k;
    }
    members.class_of[i] = best;
  }
  return TablesOf(members, tables.size());
}

using Indices = std::vector<std::uint32_t>;

// Bits of these members with one table for all.
std::uint64_t SharedCost(const Members& members, std::span<const std::uint32_t> indices) {
  SymbolCounts sum{};
  for (const std::uint32_t i : indices) {
    for (std::uint32_t s = 0; s < members.alphabet; ++s) sum[s] += members.planes[i][s];
  }
  for (std::uint32_t s = 0; s < members.alphabet; ++s) ++sum[s];
  return CodeLength(sum, NormaliseCounts(sum));
}

// The members in an order such that its two halves make good classes.
Indices HalvingOrder(const Members& members, const Indices& list) {
  Indices best;
  std::uint64_t best_cost = std::numeric_limits<std::uint64_t>::max();
  for (const auto* key : {&members.entropy, &members.mean_symbol}) {
    Indices order = list;
    std::ranges::stable_sort(order, {}, [&](std::uint32_t i) { return (*key)[i]; });
    const auto halves = std::span(order);
    const std::size_t half = (order.size() + 1) / 2;
    const std::uint64_t cost =
        SharedCost(members, halves.first(half)) + SharedCost(members, halves.subspan(half));
    if (cost >= best_cost) continue;
    best_cost = cost;
    best = std::move(order);
  }
  return best;
}

// The second half of every class becomes a class of its own.
void Split(Members& members, std::size_t classes) {
  std::vector<Indices> lists(classes);
  for (std::uint32_t i = 0; i < members.planes.size(); ++i) {
    lists[members.class_of[i]].push_back(i);
  }
  for (std::size_t k = 0; k < classes; ++k) {
    const Indices order = HalvingOrder(members, lists[k]);
    for (std::size_t j = (order.size() + 1) / 2; j < order.size(); ++j) {
      members.class_of[order[j]] = static_cast<std::uint32_t>(classes + k);
    }
  }
}

std::vector<RansTable> KMeans(Members& members, std::size_t max_classes) {
  auto tables = TablesOf(members, 1);
  while (2 * tables.size() <= max_classes) {
    const std::size_t before = tables.size();
    Split(members, before);
    tables = TablesOf(members, 2 * before);
    for (int round = 0; round < kRounds; ++round) tables = Round(members, tables);
    if (tables.size() == before) break;  // no two members differ any more
  }
  for (int round = 0; round < kLastRounds; ++round) tables = Round(members, tables);
  return tables;
}

// Orders the tables by what each saves beside those before it, and drops the rest.
std::vector<RansTable> MostUsefulFirst(const Members& members, std::vector<RansTable> tables) {
  const auto matrix = CostMatrix(members, tables);
  std::vector<std::uint64_t> best(members.planes.size(), std::numeric_limits<std::uint64_t>::max());
  std::vector<RansTable> ordered;
  std::vector<bool> used(tables.size());
  std::uint64_t total = std::numeric_limits<std::uint64_t>::max();
  while (ordered.size() < tables.size()) {
    std::size_t next = 0;
    std::uint64_t next_total = std::numeric_limits<std::uint64_t>::max();
    for (std::size_t k = 0; k < tables.size(); ++k) {
      if (used[k]) continue;
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < best.size(); ++i) sum += std::min(best[i], matrix[k][i]);
      if (sum >= next_total) continue;
      next = k;
      next_total = sum;
    }
    if (!ordered.empty() && total - std::min(total, next_total) <= total / kWorthShare) break;
    total = next_total;
    used[next] = true;
    ordered.push_back(tables[next]);
    for (std::size_t i = 0; i < best.size(); ++i) best[i] = std::min(best[i], matrix[next][i]);
  }
  return ordered;
}

}  // namespace

EntropyClasses ClusterHistograms(const SymbolHistograms& histograms, std::size_t max_classes) {
  Members members = TakeMembers(histograms);
  // The single table for all is among the candidates: it is the best first one.
  auto tables = TablesOf(members, 1);
  if (max_classes > 1) {
    const auto classes = KMeans(members, max_classes);
    tables.insert(tables.end(), classes.begin(), classes.end());
  }
  EntropyClasses result{.alphabet = histograms.alphabet, .frequencies = {}};
  for (const RansTable& table : MostUsefulFirst(members, std::move(tables))) {
    if (result.frequencies.size() < max_classes) result.frequencies.push_back(table);
  }
  return result;
}

}  // namespace kvserve
