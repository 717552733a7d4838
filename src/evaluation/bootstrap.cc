#include "evaluation/bootstrap.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace kvserve {

Interval BootstrapMean(std::span<const double> values, std::uint64_t seed) {
  constexpr std::size_t kResamples = 2000;
  if (values.empty()) return {};
  if (values.size() == 1) return {values[0], values[0]};
  std::mt19937_64 random(seed);  // % instead of a distribution: those differ between libraries
  std::vector<double> means(kResamples);
  for (double& mean : means) {
    for (std::size_t i = 0; i < values.size(); ++i) mean += values[random() % values.size()];
    mean /= static_cast<double>(values.size());
  }
  std::ranges::sort(means);
  return {means[kResamples * 25 / 1000], means[kResamples - 1 - kResamples * 25 / 1000]};
}

}  // namespace kvserve
