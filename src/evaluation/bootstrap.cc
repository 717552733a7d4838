#include "evaluation/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace kvserve {

namespace {

constexpr std::size_t kResamples = 2000;

// `statistic` takes the indices of one resample.
template <typename Statistic>
Interval Percentiles(std::size_t n, std::uint64_t seed, Statistic statistic) {
  std::mt19937_64 random(seed);  // % instead of a distribution: those differ between libraries
  std::vector<std::size_t> chosen(n);
  std::vector<double> results;
  results.reserve(kResamples);
  for (std::size_t i = 0; i < kResamples; ++i) {
    for (std::size_t& index : chosen) index = random() % n;
    results.push_back(statistic(std::span<const std::size_t>(chosen)));
  }
  std::ranges::sort(results);
  return {results[kResamples * 25 / 1000], results[kResamples - 1 - kResamples * 25 / 1000]};
}

double SumOf(std::span<const double> values, std::span<const std::size_t> chosen) {
  double sum = 0;
  for (const std::size_t index : chosen) sum += values[index];
  return sum;
}

}  // namespace

Interval BootstrapMean(std::span<const double> values, std::uint64_t seed) {
  if (values.empty()) return {};
  if (values.size() == 1) return {values[0], values[0]};
  return Percentiles(values.size(), seed, [&](std::span<const std::size_t> chosen) {
    return SumOf(values, chosen) / static_cast<double>(chosen.size());
  });
}

Interval BootstrapRelative(std::span<const double> values, std::span<const double> baselines,
                           std::uint64_t seed) {
  const std::size_t n = std::min(values.size(), baselines.size());
  if (n == 0) return {1.0, 1.0};
  return Percentiles(n, seed, [&](std::span<const std::size_t> chosen) {
    return RelativeValue(SumOf(values, chosen), SumOf(baselines, chosen));
  });
}

double RelativeValue(double value, double baseline) {
  return baseline > 0 ? value / baseline : 1.0;
}

Interval WilsonShare(double share, std::size_t n) {
  if (n == 0) return {};
  constexpr double kZ = 1.959963984540054;
  const auto trials = static_cast<double>(n);
  const double scale = 1 + kZ * kZ / trials;
  const double centre = (share + kZ * kZ / (2 * trials)) / scale;
  const double spread =
      kZ / scale * std::sqrt(share * (1 - share) / trials + kZ * kZ / (4 * trials * trials));
  return {std::max(0.0, centre - spread), std::min(1.0, centre + spread)};
}

}  // namespace kvserve
