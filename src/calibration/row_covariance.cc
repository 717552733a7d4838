#include "calibration/row_covariance.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

namespace kvserve {
namespace {

using Matrix = Eigen::MatrixXd;
using FloatRows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

}  // namespace

struct RowCovariance::State {
  std::size_t columns = 0;
  std::uint64_t count = 0;
  std::vector<Eigen::VectorXd> means;  // [group]
  std::vector<Matrix> scatters;        // [group] sums of products of deviations, lower triangle
};

RowCovariance::RowCovariance(std::size_t groups, std::size_t columns)
    : state_(std::make_unique<State>()) {
  const auto n = static_cast<Eigen::Index>(columns);
  state_->columns = columns;
  state_->means.assign(groups, Eigen::VectorXd::Zero(n));
  state_->scatters.assign(groups, Matrix::Zero(n, n));
}

RowCovariance::RowCovariance(RowCovariance&&) noexcept = default;
RowCovariance& RowCovariance::operator=(RowCovariance&&) noexcept = default;
RowCovariance::~RowCovariance() = default;

std::uint64_t RowCovariance::count() const {
  return state_->count;
}

std::size_t RowCovariance::groups() const {
  return state_->means.size();
}

std::size_t RowCovariance::columns() const {
  return state_->columns;
}

void RowCovariance::Add(std::span<const float> rows) {
  const std::size_t all = groups() * columns();
  if (rows.empty()) return;
  const auto count = static_cast<Eigen::Index>(rows.size() / all);
  const Eigen::Map<const FloatRows> block(rows.data(), count, static_cast<Eigen::Index>(all));
  const auto n = static_cast<Eigen::Index>(columns());
  const auto added = static_cast<double>(count);
  const auto before = static_cast<double>(state_->count);
  for (std::size_t group = 0; group < groups(); ++group) {
    const auto part = block.middleCols(static_cast<Eigen::Index>(group) * n, n);
    const Eigen::VectorXd mean = part.cast<double>().colwise().mean();
    FloatRows centred = part;
    for (Eigen::Index row = 0; row < count; ++row) {
      centred.row(row) = (part.row(row).cast<double>() - mean.transpose()).cast<float>();
    }
    Eigen::MatrixXf scatter = Eigen::MatrixXf::Zero(n, n);
    scatter.selfadjointView<Eigen::Lower>().rankUpdate(centred.transpose());
    const Eigen::VectorXd delta = mean - state_->means[group];
    Matrix& sum = state_->scatters[group];
    sum += scatter.cast<double>();
    sum.selfadjointView<Eigen::Lower>().rankUpdate(delta, before * added / (before + added));
    state_->means[group] += delta * (added / (before + added));
  }
  state_->count += static_cast<std::uint64_t>(count);
}

std::vector<float> RowCovariance::Mean() const {
  std::vector<float> mean;
  for (const auto& group : state_->means) {
    for (const double value : group) mean.push_back(static_cast<float>(value));
  }
  return mean;
}

namespace {

// visit(covariance) of every block on the diagonal, whole and symmetric.
template <typename Visit>
void ForEachBlock(const std::vector<Matrix>& scatters, std::size_t part, double count,
                  const Visit& visit) {
  const auto n = static_cast<Eigen::Index>(part);
  for (const Matrix& scatter : scatters) {
    for (Eigen::Index at = 0; at < scatter.cols(); at += n) {
      const Matrix block = scatter.block(at, at, n, n).selfadjointView<Eigen::Lower>();
      visit(Matrix(block / std::max(count, 1.0)));
    }
  }
}

}  // namespace

std::vector<float> RowCovariance::Covariance(std::size_t part) const {
  std::vector<float> all;
  ForEachBlock(state_->scatters, part, static_cast<double>(count()), [&](const Matrix& block) {
    for (Eigen::Index i = 0; i < block.rows(); ++i) {
      for (Eigen::Index j = 0; j < block.cols(); ++j) {
        all.push_back(static_cast<float>(block(i, j)));
      }
    }
  });
  return all;
}

RowCovariance::Axes RowCovariance::PrincipalAxes(std::size_t part) const {
  Axes axes;
  ForEachBlock(state_->scatters, part, static_cast<double>(count()), [&](const Matrix& block) {
    const Eigen::SelfAdjointEigenSolver<Matrix> solver(block);  // by rising eigenvalue
    float before = INFINITY;
    for (Eigen::Index i = block.cols() - 1; i >= 0; --i) {
      Eigen::VectorXd axis = solver.eigenvectors().col(i);
      Eigen::Index largest = 0;
      axis.cwiseAbs().maxCoeff(&largest);
      if (axis(largest) < 0) axis = -axis;
      for (const double value : axis) axes.basis.push_back(static_cast<float>(value));
      before = std::min(before, static_cast<float>(std::max(solver.eigenvalues()(i), 0.0)));
      axes.variance.push_back(before);
    }
  });
  return axes;
}

}  // namespace kvserve
