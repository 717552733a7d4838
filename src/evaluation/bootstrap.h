// Confidence intervals of a mean by resampling.
#pragma once

#include <cstdint>
#include <span>

namespace kvserve {

struct Interval {
  double low = 0.0;
  double high = 0.0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Percentile bootstrap (Efron 1979), 95 %: the 2.5 and 97.5 percentiles of the mean over 2000
// resamples. The same values and seed give the same interval on every machine. One value gives an
// interval of no width, none [0, 0].
[[nodiscard]] Interval BootstrapMean(std::span<const double> values, std::uint64_t seed);

}  // namespace kvserve
