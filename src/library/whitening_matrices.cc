#include "library/whitening_matrices.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/invert/invert.h"

namespace kvserve {

std::vector<float> DequantizedWhitening(const Whitening& whitening) {
  std::vector<float> out(whitening.inverse.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = whitening.scale[i / whitening.columns] * static_cast<float>(whitening.inverse[i]);
  }
  return out;
}

std::optional<std::vector<float>> InvertedWhitening(const Whitening& whitening) {
  const std::vector<float> matrix = DequantizedWhitening(whitening);
  const std::size_t n = whitening.columns;
  std::vector<float> out(matrix.size());
  std::vector<double> values(n * n);
  std::vector<std::size_t> columns(n);
  for (std::size_t group = 0; group < out.size(); group += n * n) {
    std::copy_n(matrix.data() + group, n * n, values.data());
    if (!InvertMatrix(values, columns)) return std::nullopt;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        const auto value = static_cast<float>(values[i * n + j]);
        if (!std::isfinite(value)) return std::nullopt;
        out[group + i * n + columns[j]] = value;
      }
    }
  }
  return out;
}

}  // namespace kvserve
