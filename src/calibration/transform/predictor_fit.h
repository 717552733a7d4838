// Ridge regression of a plane's components on earlier planes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/workers.h"
#include "kvserve/error.h"
#include "library/transform_contents.h"

namespace kvserve {

// Rows of one plane's inputs or components, [row, column].
struct FitRows {
  std::span<const float> values;
  std::size_t columns = 0;
};

// sums[i, j] = sum over rows of a[row, i] * b[row, j].
[[nodiscard]] std::vector<double> ProductSums(const FitRows& a, const FitRows& b);

// Inputs in steps, in the order of PredictorInputs; rows of zeros count nothing. `products` [i][j]
// are ProductSums of inputs[i] and inputs[j] for j <= i, empty where they are to be found; they are
// given back, since the next plane needs most of them too. The ridge is 0.002 times the mean
// diagonal. Weights come out in `bits` (2..8) and a scale per component, for inputs in 1/64 of a
// step; fewer than 8 with error feedback (RoundRows).
using PredictorProducts = std::vector<std::vector<std::vector<double>>>;
[[nodiscard]] Result<Predictor> FitPredictor(std::span<const FitRows> inputs,
                                             const FitRows& components, unsigned bits,
                                             PredictorProducts& products, Workers& workers);

}  // namespace kvserve
