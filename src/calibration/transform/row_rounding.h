// Rows of a matrix as integers of few bits with a scale each.
#pragma once

#include <Eigen/Dense>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/workers.h"
#include "kvserve/error.h"

namespace kvserve {

struct RoundedRows {
  std::vector<float> scale;         // [row], not negative
  std::vector<std::int8_t> values;  // [row][column], within +-MostOf(bits)
};

// To `bits`, 2..8, such that e norm e^T is small for every row's error e: values are rounded one
// after another, by falling diagonal of `norm`, and what is rounded away of one is made up for by
// those that follow. A row's scale is the one of a few that leaves least before that. No row
// becomes all zero unless it was. `norm` is symmetric and positive definite, [column, column];
// kInternal otherwise. columns^3 operations, and rows x columns^2. Results do not depend on the
// number of workers. Source: E. Frantar et al., "GPTQ: Accurate Post-Training Quantization for
// Generative Pre-trained Transformers", 2022.
[[nodiscard]] Result<RoundedRows> RoundRows(const Eigen::MatrixXd& rows,
                                            const Eigen::MatrixXd& norm, unsigned bits,
                                            Workers& workers);

}  // namespace kvserve
