// A whitening from the sensitivity and the covariance of a plane.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/workers.h"
#include "kvserve/error.h"
#include "library/transform_contents.h"

namespace kvserve {

// `metric` [column, column]: a unit error in its norm costs what `unit` squared says, so that
// components are in units of `unit`. It gets 5 % of its mean diagonal on its own diagonal. Then the
// square root of the metric whitens, and the principal axes of the whitened covariance, by falling
// variance, are the components; their rows are rounded to `bits` (2..8), fewer than 8 with error
// feedback in the metric (RoundRows). `mean` [column], `covariance` [group, column of the group,
// column of the group]; sensitivities between groups count nothing.
struct WhiteningShape {
  std::size_t group_columns = 0;
  unsigned bits = kMostMatrixBits;
};
[[nodiscard]] Result<Whitening> FitWhitening(std::span<const float> metric, std::vector<float> mean,
                                             std::span<const float> covariance,
                                             WhiteningShape shape, double unit, Workers& workers);

}  // namespace kvserve
