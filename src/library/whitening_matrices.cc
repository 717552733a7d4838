#include "library/whitening_matrices.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace kvserve {
namespace {

// A square matrix that is inverted in place.
class Inversion {
 public:
  explicit Inversion(std::size_t n) : n_(n), values_(n * n), from_(n) {}

  double* row(std::size_t i) { return values_.data() + i * n_; }

  // False when it is singular. Afterwards column at(j) of the inverse is in column j.
  bool Run() {
    std::iota(from_.begin(), from_.end(), std::size_t{0});
    for (std::size_t k = 0; k < n_; ++k) {
      if (!BringPivot(k)) return false;
      Eliminate(k);
    }
    return true;
  }
  [[nodiscard]] std::size_t at(std::size_t j) const { return from_[j]; }

 private:
  bool BringPivot(std::size_t k) {
    std::size_t best = k;
    for (std::size_t i = k + 1; i < n_; ++i) {
      if (std::fabs(row(i)[k]) > std::fabs(row(best)[k])) best = i;
    }
    if (best != k) {
      std::swap_ranges(row(k), row(k) + n_, row(best));
      std::swap(from_[k], from_[best]);
    }
    const double pivot = row(k)[k];
    return pivot != 0 && std::isfinite(pivot);
  }

  void Eliminate(std::size_t k) {
    double* const own = row(k);
    const double inverse = 1.0 / own[k];
    own[k] = 1.0;
    for (std::size_t c = 0; c < n_; ++c) own[c] *= inverse;
    for (std::size_t i = 0; i < n_; ++i) {
      if (i == k) continue;
      double* const other = row(i);
      const double factor = other[k];
      other[k] = 0.0;
      for (std::size_t c = 0; c < n_; ++c) other[c] -= factor * own[c];
    }
  }

  std::size_t n_;
  std::vector<double> values_;
  std::vector<std::size_t> from_;  // the row that is now row i
};

}  // namespace

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
  Inversion inversion(n);
  for (std::size_t group = 0; group < out.size(); group += n * n) {
    for (std::size_t i = 0; i < n; ++i) {
      std::copy_n(matrix.data() + group + i * n, n, inversion.row(i));
    }
    if (!inversion.Run()) return std::nullopt;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        const auto value = static_cast<float>(inversion.row(i)[j]);
        if (!std::isfinite(value)) return std::nullopt;
        out[group + i * n + inversion.at(j)] = value;
      }
    }
  }
  return out;
}

}  // namespace kvserve
