#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "calibration/transform/context_fit.h"

namespace kvserve {
namespace {

constexpr int kMostSize = 127;
constexpr double kTail = 2e-4;  // of symbols beyond the table's
constexpr double kTotal = 4096;

// [|q|] share of both signs together.
using Sizes = std::array<double, kMostSize + 1>;

Sizes SizesOf(const std::uint64_t* counts, std::size_t table) {
  Sizes sizes{};
  double sum = 0;
  for (int q = -kMostSize; q <= kMostSize; ++q) {
    const auto count = static_cast<double>(counts[q + kMostSize]);
    sizes[static_cast<std::size_t>(std::abs(q))] += count;
    sum += count;
  }
  if (sum == 0) {
    const double scale =
        std::max(0.3, std::exp2((static_cast<double>(table) - kUnitCodeTable) / 4));
    for (int q = 0; q <= kMostSize; ++q) {
      sizes[static_cast<std::size_t>(q)] = (q == 0 ? 1 : 2) * std::exp(-q / scale);
    }
    sum = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  }
  for (double& size : sizes) size /= sum;
  return sizes;
}

// Frequencies of the sizes 0..most, that of both signs being alike, with this sum: the exact ones,
// but not below 1, rounded so that the largest remainders go up.
std::vector<int> Frequencies(const Sizes& sizes, std::size_t most, int sum) {
  const auto signs = [](std::size_t q) { return q == 0 ? 1 : 2; };
  std::vector<double> exact(most + 1);
  double share = sum;  // of those that are not at the least
  double weight = 1;
  for (int round = 0; round < 8; ++round) {
    double least = 0;
    double rest = 0;
    for (std::size_t q = 0; q <= most; ++q) {
      exact[q] = sizes[q] / signs(q) * share / weight;
      if (exact[q] < 1) {
        least += signs(q);
      } else {
        rest += sizes[q];
      }
    }
    share = sum - least;
    weight = std::max(rest, 1e-9);
  }
  std::vector<int> frequencies(most + 1);
  std::vector<std::size_t> order;
  int left = sum;
  for (std::size_t q = 0; q <= most; ++q) {
    frequencies[q] = std::max(1, static_cast<int>(exact[q]));
    left -= signs(q) * frequencies[q];
    if (q > 0) order.push_back(q);
  }
  const auto remainder = [&](std::size_t q) { return exact[q] - std::floor(exact[q]); };
  std::ranges::sort(order, [&](auto a, auto b) { return remainder(a) > remainder(b); });
  for (const std::size_t q : order) {
    if (left < 2) break;
    ++frequencies[q];
    left -= 2;
  }
  frequencies[0] += left;
  return frequencies;
}

CodeTables::Frequencies Table(const Sizes& sizes) {
  double beyond = 1 - sizes[0];
  std::size_t most = 0;
  while (most < kMostSize && (most == 0 || beyond > kTail)) beyond -= sizes[++most];
  const int escape = std::max(1, static_cast<int>(std::lround(kTotal * std::max(beyond, 0.0))));
  const auto frequencies = Frequencies(sizes, most, static_cast<int>(kTotal) - escape);
  CodeTables::Frequencies table{};
  for (std::size_t q = 0; q <= most; ++q) {
    table[kMostSize + q] = table[kMostSize - q] = static_cast<std::uint16_t>(frequencies[q]);
  }
  table[kCodeEscape] = static_cast<std::uint16_t>(escape);
  return table;
}

}  // namespace

std::array<CodeTables::Frequencies, kCodeTables> FitTables(const TableCounts& counts) {
  std::array<CodeTables::Frequencies, kCodeTables> tables{};
  for (std::size_t i = 0; i < kCodeTables; ++i) tables[i] = Table(SizesOf(counts.table(i), i));
  return tables;
}

double CodeBits(const TableCounts& counts,
                const std::array<CodeTables::Frequencies, kCodeTables>& tables) {
  double bits = 0;
  for (std::size_t i = 0; i < kCodeTables; ++i) {
    for (std::size_t s = 0; s < kCodeSymbols; ++s) {
      const bool escaped = tables[i][s] == 0;
      const double frequency = tables[i][escaped ? kCodeEscape : s];
      bits += static_cast<double>(counts.table(i)[s]) *
              (std::log2(kTotal / frequency) + (escaped ? 8 : 0));
    }
  }
  return bits;
}

}  // namespace kvserve
