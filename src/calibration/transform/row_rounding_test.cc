#include "calibration/transform/row_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "library/transform_contents.h"

namespace kvserve {
namespace {

using Matrix = Eigen::MatrixXd;

Matrix Random(Eigen::Index rows, Eigen::Index columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Matrix matrix(rows, columns);
  for (Eigen::Index i = 0; i < rows; ++i) {
    for (Eigen::Index j = 0; j < columns; ++j) matrix(i, j) = normal(random);
  }
  return matrix;
}

// Of columns that have much in common, as inputs of a predictor do.
Matrix CorrelatedNorm(Eigen::Index columns) {
  const Matrix few = Random(columns, columns / 4, 7);
  return few * few.transpose() + 0.02 * Matrix::Identity(columns, columns);
}

double Error(const Matrix& rows, const RoundedRows& rounded, const Matrix& norm) {
  Matrix error = rows;
  std::size_t at = 0;
  for (Eigen::Index i = 0; i < rows.rows(); ++i) {
    for (Eigen::Index j = 0; j < rows.cols(); ++j) {
      error(i, j) -= double{rounded.scale[static_cast<std::size_t>(i)]} * rounded.values[at++];
    }
  }
  return (error * norm * error.transpose()).trace();
}

RoundedRows Nearest(const Matrix& rows, unsigned bits) {
  RoundedRows rounded;
  for (Eigen::Index i = 0; i < rows.rows(); ++i) {
    const double scale = rows.row(i).cwiseAbs().maxCoeff() / MostOf(bits);
    rounded.scale.push_back(static_cast<float>(scale));
    for (Eigen::Index j = 0; j < rows.cols(); ++j) {
      rounded.values.push_back(static_cast<std::int8_t>(std::lround(rows(i, j) / scale)));
    }
  }
  return rounded;
}

TEST(RowRounding, FeedbackLeavesFarLessInTheNorm) {
  Workers workers(2);
  const Matrix rows = Random(20, 64, 1);
  const Matrix norm = CorrelatedNorm(64);
  for (const unsigned bits : {3U, 4U, 6U}) {
    const auto rounded = RoundRows(rows, norm, bits, workers);
    ASSERT_TRUE(rounded) << rounded.error().message;
    EXPECT_LT(Error(rows, *rounded, norm), 0.25 * Error(rows, Nearest(rows, bits), norm)) << bits;
    for (const std::int8_t value : rounded->values) {
      EXPECT_LE(std::abs(value), MostOf(bits));
    }
  }
}

TEST(RowRounding, MoreBitsLeaveLess) {
  Workers workers;
  const Matrix rows = Random(8, 48, 2);
  const Matrix norm = CorrelatedNorm(48);
  double before = INFINITY;
  for (unsigned bits = kLeastMatrixBits; bits <= kMostMatrixBits; ++bits) {
    const double error = Error(rows, RoundRows(rows, norm, bits, workers).value(), norm);
    EXPECT_LT(error, 0.6 * before) << bits;
    before = error;
  }
}

TEST(RowRounding, ThreadsChangeNothing) {
  Workers one;
  Workers three(3);
  const Matrix rows = Random(9, 32, 3);
  const Matrix norm = CorrelatedNorm(32);
  const auto a = RoundRows(rows, norm, 4, one).value();
  const auto b = RoundRows(rows, norm, 4, three).value();
  EXPECT_EQ(a.scale, b.scale);
  EXPECT_EQ(a.values, b.values);
}

TEST(RowRounding, ARowOfZerosStaysOneAndNoOtherBecomesOne) {
  Workers workers;
  Matrix rows = Matrix::Zero(2, 3);
  rows.row(1) << 1e-3, -1, 1e-3;
  const auto rounded = RoundRows(rows, Matrix::Identity(3, 3), 2, workers).value();
  EXPECT_EQ(rounded.scale[0], 0);
  EXPECT_EQ(rounded.values, (std::vector<std::int8_t>{0, 0, 0, 0, -1, 0}));
}

TEST(RowRounding, ANormThatIsNoneIsRefused) {
  Workers workers;
  Matrix norm = Matrix::Identity(3, 3);
  norm(1, 1) = -1;
  const auto rounded = RoundRows(Random(2, 3, 5), norm, 4, workers);
  ASSERT_FALSE(rounded);
  EXPECT_EQ(rounded.error().code, ErrorCode::kInternal);
}

}  // namespace
}  // namespace kvserve
