#include "calibration/transform/row_rounding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include "base/try.h"
#include "library/transform_contents.h"

namespace kvserve {
namespace {

using Eigen::Index;
using Matrix = Eigen::MatrixXd;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Parts of a row's largest magnitude that may be its largest level: few bits had better clip.
constexpr std::array kLargest = {1.0, 0.85, 0.7, 0.6, 0.5, 0.42, 0.35, 0.3, 0.25};

// What an error in a column costs others that follow: row i of the upper factor U of the norm's
// inverse U^T U says how an error in column i, over U[i, i], is to be made up for.
struct Feedback {
  std::vector<Index> order;  // columns as they are rounded
  RowMajor factor;           // in that order
};

Result<Feedback> FeedbackOf(const Matrix& norm) {
  Feedback feedback;
  feedback.order.resize(static_cast<std::size_t>(norm.rows()));
  std::iota(feedback.order.begin(), feedback.order.end(), Index{0});
  std::ranges::stable_sort(feedback.order,
                           [&](Index a, Index b) { return norm(a, a) > norm(b, b); });
  const Matrix ordered = norm(feedback.order, feedback.order);
  const Eigen::LLT<Matrix> solver(ordered);
  if (solver.info() != Eigen::Success) {
    return MakeError(ErrorCode::kInternal, "a norm to round in is not positive definite");
  }
  const Matrix inverse = solver.solve(Matrix::Identity(norm.rows(), norm.rows()));
  const Eigen::LLT<Matrix, Eigen::Upper> root(inverse);
  if (root.info() != Eigen::Success) {
    return MakeError(ErrorCode::kInternal, "the inverse of a norm is not positive definite");
  }
  feedback.factor = root.matrixU();
  return feedback;
}

double Rounded(double value, double scale, int most) {
  return std::clamp(std::nearbyint(value / scale), -double(most), double(most));
}

// Of the candidates, by the error of plain rounding, each value's counted as it counts when it is
// its turn.
double BestScale(std::span<const double> row, const Feedback& feedback, int most) {
  double largest = 0;
  for (const double value : row) largest = std::max(largest, std::fabs(value));
  if (!(largest > 0)) return 0;
  double best = 0;
  double least = INFINITY;
  for (const double part : kLargest) {
    const double scale = largest * part / most;
    double error = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto at = static_cast<Index>(i);
      const double left = (row[i] - scale * Rounded(row[i], scale, most)) / feedback.factor(at, at);
      error += left * left;
    }
    if (error >= least) continue;
    least = error;
    best = scale;
  }
  return best;
}

// `row` in the feedback's order; it is used up.
float RoundRow(const Feedback& feedback, int most, std::span<double> row, std::int8_t* out) {
  std::size_t largest = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (std::fabs(row[i]) > std::fabs(row[largest])) largest = i;
  }
  const bool negative = row[largest] < 0;
  const auto scale = static_cast<float>(BestScale(row, feedback, most));
  if (!std::isnormal(scale)) return 0;
  bool any = false;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double* const factor = feedback.factor.row(static_cast<Index>(i)).data();
    const double value = Rounded(row[i], double{scale}, most);
    const double error = (row[i] - value * double{scale}) / factor[i];
    for (std::size_t j = i + 1; j < row.size(); ++j) row[j] -= error * factor[j];
    out[feedback.order[i]] = static_cast<std::int8_t>(value);
    any = any || value != 0;
  }
  if (!any) out[feedback.order[largest]] = static_cast<std::int8_t>(negative ? -1 : 1);
  return scale;
}

}  // namespace

Result<RoundedRows> RoundRows(const Matrix& rows, const Matrix& norm, unsigned bits,
                              Workers& workers) {
  KVSERVE_ASSIGN(const Feedback feedback, FeedbackOf(norm));
  const auto columns = static_cast<std::size_t>(rows.cols());
  RoundedRows rounded;
  rounded.scale.resize(static_cast<std::size_t>(rows.rows()));
  rounded.values.resize(rounded.scale.size() * columns);
  KVSERVE_TRY(workers.Run(rounded.scale.size(), [&](std::size_t i, Arena& scratch) -> Status {
    const auto row = scratch.Take<double>(columns);
    for (std::size_t c = 0; c < columns; ++c) {
      row[c] = rows(static_cast<Index>(i), feedback.order[c]);
    }
    rounded.scale[i] = RoundRow(feedback, MostOf(bits), row, &rounded.values[i * columns]);
    return {};
  }));
  return rounded;
}

}  // namespace kvserve
