#include "calibration/row_covariance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvserve {
namespace {

// Two groups of three columns; within a group column 1 follows column 0, and all have large means.
std::vector<float> Rows(std::size_t rows) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (std::size_t i = 0; i < rows; ++i) {
    for (int group = 0; group < 2; ++group) {
      const float a = normal(random);
      values.push_back(600.0F + 3.0F * a);
      values.push_back(-80.0F + 2.0F * a + 0.1F * normal(random));
      values.push_back(static_cast<float>(group) + 0.5F * normal(random));
    }
  }
  return values;
}

RowCovariance Added(std::span<const float> rows, std::size_t groups, std::size_t columns,
                    std::size_t block_rows) {
  RowCovariance covariance(groups, columns);
  const std::size_t block = block_rows * groups * columns;
  for (std::size_t at = 0; at < rows.size(); at += block) {
    covariance.Add(rows.subspan(at, std::min(block, rows.size() - at)));
  }
  return covariance;
}

TEST(RowCovariance, IsThatOfAllBlocks) {
  const auto rows = Rows(1000);
  const auto covariance = Added(rows, 2, 3, 64);
  EXPECT_EQ(covariance.count(), 1000U);
  const auto mean = covariance.Mean();
  const auto found = covariance.Covariance(3);
  ASSERT_EQ(found.size(), 18U);
  for (std::size_t group = 0; group < 2; ++group) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) {
        double sum = 0;
        for (std::size_t row = 0; row < 1000; ++row) {
          const float* const values = rows.data() + row * 6 + group * 3;
          sum +=
              (double{values[i]} - mean[group * 3 + i]) * (double{values[j]} - mean[group * 3 + j]);
        }
        EXPECT_NEAR(found[group * 9 + i * 3 + j], sum / 1000, 1e-3) << group << i << j;
      }
    }
  }
}

TEST(RowCovariance, PartsAreBlocksOfTheWhole) {
  const auto rows = Rows(200);
  const auto joint = Added(rows, 1, 6, 50).Covariance(3);
  const auto apart = Added(rows, 2, 3, 50).Covariance(3);
  ASSERT_EQ(joint.size(), apart.size());
  for (std::size_t i = 0; i < joint.size(); ++i) EXPECT_NEAR(joint[i], apart[i], 1e-4);
}

TEST(RowCovariance, AxesAreOrthonormalAndDecorrelate) {
  const auto rows = Rows(1000);
  const auto covariance = Added(rows, 2, 3, 100);
  const auto axes = covariance.PrincipalAxes(3);
  const auto found = covariance.Covariance(3);
  for (std::size_t group = 0; group < 2; ++group) {
    const float* const basis = axes.basis.data() + group * 9;
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) {
        double product = 0;
        double spread = 0;
        for (std::size_t a = 0; a < 3; ++a) {
          product += double{basis[i * 3 + a]} * basis[j * 3 + a];
          for (std::size_t b = 0; b < 3; ++b) {
            spread += double{basis[i * 3 + a]} * found[group * 9 + a * 3 + b] * basis[j * 3 + b];
          }
        }
        EXPECT_NEAR(product, i == j ? 1 : 0, 1e-6);
        EXPECT_NEAR(spread, i == j ? axes.variance[group * 3 + i] : 0, 1e-4);
      }
    }
    EXPECT_GT(axes.variance[group * 3], 12.0F);  // 3^2 + 2^2, along (3, 2, 0)
    EXPECT_NEAR(basis[0] / basis[1], 1.5F, 0.02F);
    EXPECT_GT(basis[0], 0.0F);
  }
}

TEST(RowCovariance, NothingIsThereWithoutRows) {
  RowCovariance covariance(1, 2);
  covariance.Add({});
  EXPECT_EQ(covariance.count(), 0U);
  EXPECT_EQ(covariance.Mean(), (std::vector<float>{0, 0}));
  EXPECT_EQ(covariance.Covariance(2), (std::vector<float>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace kvserve
