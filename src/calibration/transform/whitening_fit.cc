#include "calibration/transform/whitening_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/try.h"
#include "calibration/transform/row_rounding.h"

namespace kvserve {
namespace {

using Matrix = Eigen::MatrixXd;
using Eigen::Index;
using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr double kShrinkage = 0.05;    // of the metric towards its mean diagonal
constexpr double kRank = 1e-12;        // eigenvalues below that part of the largest are as large
constexpr double kInsensitive = 1e-6;  // diagonal, in units, of a plane that nothing depends on

struct Roots {
  Matrix root;     // of the metric
  Matrix inverse;  // of the root
};

Roots SquareRoots(const Matrix& metric) {
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(metric);
  const double least = solver.eigenvalues().maxCoeff() * kRank;
  const Eigen::VectorXd roots = solver.eigenvalues().cwiseMax(least).cwiseSqrt();
  const Matrix& axes = solver.eigenvectors();
  return {axes * roots.asDiagonal() * axes.transpose(),
          axes * roots.cwiseInverse().asDiagonal() * axes.transpose()};
}

// Rows: components by falling variance, each with its largest entry positive.
Matrix Components(const Roots& roots, const Matrix& covariance) {
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(roots.root * covariance * roots.root);
  Matrix rows = solver.eigenvectors().rowwise().reverse().transpose() * roots.inverse;
  for (Index i = 0; i < rows.rows(); ++i) {
    Index largest = 0;
    rows.row(i).cwiseAbs().maxCoeff(&largest);
    if (rows(i, largest) < 0) rows.row(i) *= -1;
  }
  return rows;
}

void AppendRounded(const Matrix& rows, Whitening& whitening) {
  for (Index i = 0; i < rows.rows(); ++i) {
    const double most = rows.row(i).cwiseAbs().maxCoeff();
    const auto scale = std::max(static_cast<float>(most / 127), std::numeric_limits<float>::min());
    whitening.scale.push_back(scale);
    for (Index c = 0; c < rows.cols(); ++c) {
      const double value = std::clamp(std::round(rows(i, c) / double{scale}), -127.0, 127.0);
      whitening.inverse.push_back(static_cast<std::int8_t>(value));
    }
  }
}

void Append(const RoundedRows& rows, Whitening& whitening) {
  for (const float scale : rows.scale) {
    whitening.scale.push_back(std::max(scale, std::numeric_limits<float>::min()));
  }
  whitening.inverse.insert(whitening.inverse.end(), rows.values.begin(), rows.values.end());
}

}  // namespace

Result<Whitening> FitWhitening(std::span<const float> metric, std::vector<float> mean,
                               std::span<const float> covariance, WhiteningShape shape, double unit,
                               Workers& workers) {
  Whitening whitening;
  whitening.columns = static_cast<std::uint32_t>(shape.group_columns);
  whitening.bits = static_cast<std::uint8_t>(shape.bits);
  const auto all = static_cast<Index>(mean.size());
  const auto n = static_cast<Index>(shape.group_columns);
  whitening.mean = std::move(mean);
  const Eigen::Map<const FloatMatrix> whole(metric.data(), all, all);
  double diagonal = whole.diagonal().cast<double>().mean() / (unit * unit);
  if (!(diagonal > kInsensitive)) diagonal = kInsensitive;
  for (Index at = 0; at < all; at += n) {
    const Eigen::Map<const FloatMatrix> spread(covariance.data() + at * n, n, n);
    Matrix block = whole.block(at, at, n, n).cast<double>() * ((1 - kShrinkage) / (unit * unit));
    block = (block + block.transpose()).eval() / 2;
    block.diagonal().array() += kShrinkage * diagonal;
    const Matrix rows = Components(SquareRoots(block), spread.cast<double>());
    if (shape.bits == kMostMatrixBits) {
      AppendRounded(rows, whitening);
      continue;
    }
    KVSERVE_ASSIGN(const RoundedRows rounded, RoundRows(rows, block, shape.bits, workers));
    Append(rounded, whitening);
  }
  return whitening;
}

}  // namespace kvserve
