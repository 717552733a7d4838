// Confidence intervals of a mean by resampling.
#pragma once

#include <cstddef>
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

// The same for RelativeValue of paired measurements [prompt], resampled together.
[[nodiscard]] Interval BootstrapRelative(std::span<const double> values,
                                         std::span<const double> baselines, std::uint64_t seed);

// value / baseline of two sums that are not negative; 1 when both are 0 or the baseline is, which
// says nothing about a profile.
[[nodiscard]] double RelativeValue(double value, double baseline);

// 95 % interval of a share that was `share` in `n` trials (Wilson 1927): unlike the bootstrap it
// has a width where all trials went the same way.
[[nodiscard]] Interval WilsonShare(double share, std::size_t n);

}  // namespace kvserve
