// Noise that is even in a quadratic form: what a codec that whitens by it makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/split_mix.h"

namespace kvserve {

class MetricNoise {
 public:
  // `forms` [head, dim, dim], symmetric, no negative diagonal. Each gets 5 % of the mean of all
  // diagonals on its own, or 1 where that is 0, so that no direction is free.
  MetricNoise(std::span<const float> forms, std::size_t dim);

  // Root mean square of the noise's channels at amplitude 1.
  [[nodiscard]] double rms() const { return rms_; }
  // Adds noise of this amplitude to rows [row, head, dim]: in the regularised forms each row has a
  // squared length of about amplitude^2 * columns.
  void Add(double amplitude, SplitMix64& random, std::span<float> rows) const;

 private:
  std::size_t dim_;
  std::size_t heads_;
  std::vector<float> shapes_;  // [head, dim, dim] inverse square roots
  double rms_ = 0;
};

// Sum over rows [row, head, dim] of e^T form e.
[[nodiscard]] double FormEnergy(std::span<const float> forms, std::size_t dim,
                                std::span<const float> rows);

}  // namespace kvserve
