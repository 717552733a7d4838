#include "kernels/attention/queries_ahead.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix RotationAt(RopeStyle style, double theta, std::size_t dim, double position) {
  Matrix r(dim, std::vector<double>(dim, 0.0));
  for (std::size_t i = 0; i < dim / 2; ++i) {
    const double angle =
        position * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    const std::size_t x = style == RopeStyle::kHalves ? i : 2 * i;
    const std::size_t y = style == RopeStyle::kHalves ? i + dim / 2 : 2 * i + 1;
    r[x][x] = r[y][y] = std::cos(angle);
    r[x][y] = -std::sin(angle);
    r[y][x] = std::sin(angle);
  }
  return r;
}

struct Statistics {
  std::vector<float> mean;
  std::vector<float> covariance;
};

Statistics Sample(std::size_t dim) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  Statistics made{std::vector<float>(dim), std::vector<float>(dim * dim)};
  for (float& value : made.mean) value = normal(random);
  for (std::size_t i = 0; i < dim; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      made.covariance[i * dim + j] = made.covariance[j * dim + i] = normal(random);
    }
  }
  return made;
}

void ExpectAverage(RopeStyle style, float theta, std::size_t dim, double first, double last) {
  const Statistics given = Sample(dim);
  std::vector<double> mean(dim, 0.0), covariance(dim * dim, 0.0);
  for (int n = 0; n < 32; ++n) {
    const Matrix r = RotationAt(style, theta, dim, first + (last - first) * n / 31.0);
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j < dim; ++j) {
        mean[i] += r[i][j] * given.mean[j] / 32;
        for (std::size_t k = 0; k < dim * dim; ++k) {
          covariance[i * dim + j] += r[i][k / dim] * given.covariance[k] * r[j][k % dim] / 32;
        }
      }
    }
  }
  std::vector<float> found_mean(dim), found_covariance(dim * dim);
  Arena arena;
  RotationAverages(style, theta, dim, first, last, arena)
      .Rotate(given.mean, given.covariance, found_mean, found_covariance);
  for (std::size_t i = 0; i < dim; ++i) EXPECT_NEAR(found_mean[i], mean[i], 1e-6) << i;
  for (std::size_t i = 0; i < dim * dim; ++i) {
    EXPECT_NEAR(found_covariance[i], covariance[i], 2e-6) << i;
  }
}

TEST(QueriesAhead, AreTheAverageOfRotatedOnes) {
  ExpectAverage(RopeStyle::kHalves, 1e4F, 8, 1536, 1920);
  ExpectAverage(RopeStyle::kHalves, 1e4F, 34, 1536, 1920);
  ExpectAverage(RopeStyle::kInterleaved, 1e4F, 34, 1536, 1920);
  ExpectAverage(RopeStyle::kInterleaved, 1e5F, 8, 20, 404);
  ExpectAverage(RopeStyle::kHalves, 1e4F, 2, 7, 7 + 31 * 3.14159265358979);  // a step of pi
  ExpectAverage(RopeStyle::kInterleaved, 1e4F, 4, 100, 100);                 // one position
}

TEST(QueriesAhead, EveryTargetGivesTheOraclesBlocks) {
  std::mt19937 random(4);
  std::normal_distribution<double> normal;
  for (const std::size_t count : {0U, 1U, 7U, 8U, 13U, 64U}) {
    std::vector<std::vector<float>> in(4, std::vector<float>(count));
    std::vector<std::vector<double>> turns(4, std::vector<double>(count));
    for (auto& part : in) {
      for (float& value : part) value = static_cast<float>(normal(random));
    }
    for (auto& part : turns) {
      for (double& value : part) value = normal(random);
    }
    const auto turn = [&](auto function) {
      std::vector<std::vector<float>> out(4, std::vector<float>(count));
      function(PairBlocks<const float>{in[0].data(), in[1].data(), in[2].data(), in[3].data()},
               TurnColumns{turns[0], turns[1]}, TurnColumns{turns[2], turns[3]},
               PairBlocks<float>{out[0].data(), out[1].data(), out[2].data(), out[3].data()});
      return out;
    };
    const auto expected = turn(TurnPairBlocksRef);
    ForEachIsa([&] { EXPECT_EQ(turn(TurnPairBlocks), expected) << count; });
  }
}

TEST(QueriesAhead, WithoutRopeAreAsTheyWere) {
  const Statistics given = Sample(3);
  std::vector<float> mean(3), covariance(9);
  Arena arena;
  RotationAverages(RopeStyle::kNone, 0.0F, 3, 10, 20, arena)
      .Rotate(given.mean, given.covariance, mean, covariance);
  EXPECT_EQ(mean, given.mean);
  EXPECT_EQ(covariance, given.covariance);
}

}  // namespace
}  // namespace kvserve
