#include "calibration/entropy_clusters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/histogram/histogram.h"
#include "kernels/rans/rans_table.h"

namespace kvserve {
namespace {

SymbolCounts CountsOf(const SymbolHistograms& histograms, std::size_t plane) {
  SymbolCounts counts{};
  const auto row = histograms.plane(plane);
  std::copy(row.begin(), row.end(), counts.begin());
  return counts;
}

// Planes of quantized Gaussians of `widths` (in symbols) in turn, and of two centres.
SymbolHistograms Gaussians(std::uint32_t alphabet, const std::vector<double>& widths,
                           std::size_t planes, std::uint32_t symbols) {
  SymbolHistograms histograms{.alphabet = alphabet, .counts = {}};
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (std::size_t p = 0; p < planes; ++p) {
    std::vector<std::uint32_t> counts(alphabet);
    const double width = widths[p % widths.size()];
    for (std::uint32_t i = 0; i < symbols; ++i) {
      const double value = (alphabet - 1) / 2.0 + normal(random) * width;
      const long symbol = std::clamp<long>(std::lround(value), 0, alphabet - 1);
      ++counts[static_cast<std::size_t>(symbol)];
    }
    histograms.counts.insert(histograms.counts.end(), counts.begin(), counts.end());
  }
  return histograms;
}

RansTable TableOf(const EntropyClasses& classes, std::size_t k) {
  return classes.frequencies[k];
}

// Bits of all planes, each with the best of the first `classes` tables.
std::uint64_t TotalCost(const SymbolHistograms& histograms, const EntropyClasses& classes,
                        std::size_t used) {
  std::uint64_t total = 0;
  for (std::size_t p = 0; p < histograms.planes(); ++p) {
    const auto counts = CountsOf(histograms, p);
    std::uint64_t best = UINT64_MAX;
    for (std::size_t k = 0; k < used; ++k) {
      best = std::min(best, CodeLength(counts, TableOf(classes, k)));
    }
    total += best;
  }
  return total;
}

std::uint64_t OwnTablesCost(const SymbolHistograms& histograms) {
  std::uint64_t total = 0;
  for (std::size_t p = 0; p < histograms.planes(); ++p) {
    const auto counts = CountsOf(histograms, p);
    total += CodeLength(counts, NormaliseCounts(counts));
  }
  return total;
}

void ExpectValid(const EntropyClasses& classes, std::uint32_t alphabet, std::size_t most) {
  EXPECT_EQ(classes.alphabet, alphabet);
  EXPECT_GE(classes.frequencies.size(), 1U);
  EXPECT_LE(classes.frequencies.size(), most);
  for (const auto& table : classes.frequencies) {
    const auto used = std::span(table).first(alphabet);
    EXPECT_EQ(std::accumulate(used.begin(), used.end(), 0U), kRansTotal);
    EXPECT_GE(*std::min_element(used.begin(), used.end()), 1U);
    for (std::size_t s = alphabet; s < 256; ++s) EXPECT_EQ(table[s], 0);
  }
}

TEST(EntropyClusters, FindsTheKindsOfPlanes) {
  const auto histograms = Gaussians(16, {0.7, 1.4, 2.6, 4.0}, 400, 8192);
  const auto classes = ClusterHistograms(histograms);
  ExpectValid(classes, 16, 64);
  EXPECT_GE(classes.frequencies.size(), 4U);
  EXPECT_LT(classes.frequencies.size(), 16U);  // four kinds do not need sixteen tables
  const auto own = OwnTablesCost(histograms);
  EXPECT_LT(TotalCost(histograms, classes, classes.frequencies.size()), own + own / 200);
  EXPECT_GT(TotalCost(histograms, classes, 1), own + own / 20);
}

TEST(EntropyClusters, MirroredPlanesAreToldApart) {
  SymbolHistograms histograms{.alphabet = 4, .counts = {}};
  for (int i = 0; i < 50; ++i) {
    histograms.counts.insert(histograms.counts.end(), {900, 80, 15, 5, 5, 15, 80, 900});
  }
  const auto classes = ClusterHistograms(histograms);
  ExpectValid(classes, 4, 64);
  const auto own = OwnTablesCost(histograms);
  EXPECT_LT(TotalCost(histograms, classes, classes.frequencies.size()), own + own / 100);
}

TEST(EntropyClusters, EachClassSavesBesideThoseBefore) {
  const auto histograms = Gaussians(16, {0.5, 0.8, 1.2, 1.9, 2.8, 4.5}, 600, 4096);
  const auto classes = ClusterHistograms(histograms);
  ASSERT_GE(classes.frequencies.size(), 3U);
  std::uint64_t before = TotalCost(histograms, classes, 1);
  for (std::size_t used = 2; used <= classes.frequencies.size(); ++used) {
    const auto now = TotalCost(histograms, classes, used);
    EXPECT_LT(now, before - before / 5000) << used;
    before = now;
  }
  // The first one is best alone.
  EntropyClasses alone = classes;
  for (std::size_t k = 1; k < classes.frequencies.size(); ++k) {
    alone.frequencies = {classes.frequencies[k]};
    EXPECT_GE(TotalCost(histograms, alone, 1), TotalCost(histograms, classes, 1)) << k;
  }
}

TEST(EntropyClusters, SymbolsThatNeverOccurHaveACode) {
  SymbolHistograms histograms{.alphabet = 256, .counts = std::vector<std::uint32_t>(512)};
  histograms.counts[3] = 100000;
  histograms.counts[4] = 100000;
  histograms.counts[256 + 200] = 1;
  histograms.counts[256 + 201] = 1;
  ExpectValid(ClusterHistograms(histograms), 256, 64);
  SymbolHistograms two{.alphabet = 2, .counts = {1000000, 1}};
  ExpectValid(ClusterHistograms(two), 2, 64);
}

TEST(EntropyClusters, KeepsToTheLimitAndRepeats) {
  const auto histograms = Gaussians(6, {0.4, 0.9, 1.5, 2.2}, 10000, 64);
  for (const std::size_t most : std::vector<std::size_t>{1, 2, 3, 64}) {
    const auto classes = ClusterHistograms(histograms, most);
    ExpectValid(classes, 6, most);
    EXPECT_EQ(ClusterHistograms(histograms, most).frequencies, classes.frequencies);
  }
}

}  // namespace
}  // namespace kvserve
