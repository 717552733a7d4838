#include "kernels/affine/affine.h"

namespace kvserve {

void AddColumnSumsRef(std::span<const float> values, std::span<double> sums,
                      std::span<double> squares) {
  for (std::size_t at = 0; at < values.size(); at += sums.size()) {
    for (std::size_t c = 0; c < sums.size(); ++c) {
      const double value = values[at + c];
      sums[c] += value;
      squares[c] += value * value;
    }
  }
}

void CenterColumnsRef(std::span<float> values, std::span<const float> mean,
                      std::span<const float> factor) {
  for (std::size_t at = 0; at < values.size(); at += mean.size()) {
    for (std::size_t c = 0; c < mean.size(); ++c) {
      values[at + c] = (values[at + c] - mean[c]) * factor[c];
    }
  }
}

void RestoreColumnsRef(std::span<float> values, std::span<const float> scale,
                       std::span<const float> mean) {
  for (std::size_t at = 0; at < values.size(); at += mean.size()) {
    for (std::size_t c = 0; c < mean.size(); ++c) {
      values[at + c] = values[at + c] * scale[c] + mean[c];
    }
  }
}

}  // namespace kvserve
