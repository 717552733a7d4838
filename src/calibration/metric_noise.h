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
  // `forms` [head, dim, dim], symmetric, no negative diagonal. Each gets 5 % of the mean of its
  // diagonal, or 1 where that is 0, so that no direction is free.
  MetricNoise(std::span<const float> forms, std::size_t dim);

  // Root mean square of the channels of a head's noise at amplitude 1.
  [[nodiscard]] double rms(std::size_t head) const { return rms_[head]; }
  // Adds noise of this amplitude to one head of rows [row, head, dim]: in its regularised form each
  // row has a squared length of about amplitude^2 * dim.
  void Add(std::size_t head, double amplitude, SplitMix64& random, std::span<float> rows) const;

 private:
  std::size_t dim_;
  std::size_t heads_;
  std::vector<float> shapes_;  // [head, dim, dim] inverse square roots
  std::vector<double> rms_;    // [head]
};

// Sum over rows [row, head, dim] of e^T form e, of one head.
[[nodiscard]] double FormEnergy(std::span<const float> forms, std::size_t dim, std::size_t head,
                                std::span<const float> rows);

}  // namespace kvserve
