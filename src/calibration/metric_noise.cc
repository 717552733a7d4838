#include "calibration/metric_noise.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvserve {
namespace {

using FloatRows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr double kShrinkage = 0.05;

// In [0, 1).
double Unit(SplitMix64& random) {
  return static_cast<double>(random.Next() >> 11) * 0x1p-53;
}

}  // namespace

MetricNoise::MetricNoise(std::span<const float> forms, std::size_t dim)
    : dim_(dim), heads_(forms.size() / (dim * dim)), shapes_(forms.size()) {
  const auto n = static_cast<Eigen::Index>(dim);
  for (std::size_t head = 0; head < heads_; ++head) {
    const Eigen::Map<const FloatRows> form(forms.data() + head * dim * dim, n, n);
    const double mean = form.diagonal().cast<double>().mean();
    const double added = mean > 0 ? kShrinkage * mean : 1;
    Eigen::MatrixXd regular = (1 - kShrinkage) * form.cast<double>();
    regular.diagonal().array() += added;
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(regular);
    const Eigen::VectorXd roots = solver.eigenvalues().cwiseMax(added / 2).cwiseSqrt();
    const Eigen::MatrixXd shape = solver.eigenvectors() * roots.cwiseInverse().asDiagonal() *
                                  solver.eigenvectors().transpose();
    Eigen::Map<FloatRows>(shapes_.data() + head * dim * dim, n, n) = shape.cast<float>();
    rms_.push_back(std::sqrt(shape.squaredNorm() / static_cast<double>(dim)));
  }
}

void MetricNoise::Add(std::size_t head, double amplitude, SplitMix64& random,
                      std::span<float> rows) const {
  const auto n = static_cast<Eigen::Index>(dim_);
  const Eigen::Map<const FloatRows> shape(shapes_.data() + head * dim_ * dim_, n, n);
  Eigen::VectorXf white(n);
  for (std::size_t at = head * dim_; at < rows.size(); at += heads_ * dim_) {
    for (float& value : white) {  // Box and Muller
      const double radius = std::sqrt(-2 * std::log(1 - Unit(random)));
      value =
          static_cast<float>(amplitude * radius * std::cos(2 * std::numbers::pi * Unit(random)));
    }
    Eigen::Map<Eigen::VectorXf>(rows.data() + at, n) += shape * white;
  }
}

double FormEnergy(std::span<const float> forms, std::size_t dim, std::size_t head,
                  std::span<const float> rows) {
  const auto n = static_cast<Eigen::Index>(dim);
  const std::size_t heads = forms.size() / (dim * dim);
  const Eigen::Map<const FloatRows> form(forms.data() + head * dim * dim, n, n);
  double sum = 0;
  for (std::size_t at = head * dim; at < rows.size(); at += heads * dim) {
    const Eigen::Map<const Eigen::VectorXf> row(rows.data() + at, n);
    sum += double{row.dot(form * row)};
  }
  return sum;
}

}  // namespace kvserve
