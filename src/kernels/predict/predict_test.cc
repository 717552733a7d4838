#include "kernels/predict/predict.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

std::vector<float> Gaussian(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(Predict, EveryTargetGivesTheOraclesBits) {
  for (const std::size_t count : {0U, 1U, 7U, 8U, 64U, 100U, 1003U}) {
    const auto input = Gaussian(count, 1);
    const auto reference = Gaussian(count, 2);
    Projection expected{0.125, 3.0};
    AddProjectionRef(input, reference, expected);
    auto subtracted = input, added = input;
    SubtractScaledRef(subtracted, reference, 0.7F);
    AddScaledRef(added, reference, 0.7F);
    ForEachIsa([&] {
      Projection actual{0.125, 3.0};
      AddProjection(input, reference, actual);
      EXPECT_EQ(actual.product, expected.product) << count;
      EXPECT_EQ(actual.energy, expected.energy) << count;
      auto values = input;
      SubtractScaled(values, reference, 0.7F);
      EXPECT_EQ(values, subtracted);
      values = input;
      AddScaled(values, reference, 0.7F);
      EXPECT_EQ(values, added);
    });
  }
}

TEST(Predict, ProjectionFindsTheWeight) {
  const auto reference = Gaussian(1000, 3);
  auto values = Gaussian(1000, 4);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.1F * values[i] + 1.5F * reference[i];
  Projection sums;
  AddProjection(values, reference, sums);
  EXPECT_NEAR(sums.product / sums.energy, 1.5, 0.02);
}

}  // namespace
}  // namespace kvserve
