#include "calibration/metric_noise.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvserve {
namespace {

// Two heads of two channels: correlated and strong, weak.
const std::vector<float> kForms = {100, 60, 60, 100, 1, 0, 0, 4};

TEST(MetricNoise, IsEvenInTheRegularisedForm) {
  const MetricNoise noise(kForms, 2);
  SplitMix64 random(1);
  constexpr std::size_t kRows = 20000;
  std::vector<float> rows(kRows * 4);
  noise.Add(0, 0.5, random, rows);
  double squares = 0;
  for (const float value : rows) squares += double{value} * value;
  EXPECT_NEAR(std::sqrt(squares / (2 * kRows)), 0.5 * noise.rms(0), 0.01 * noise.rms(0));
  std::vector<float> regular = kForms;
  for (float& value : regular) value *= 0.95F;
  regular[0] += 5;
  regular[3] += 5;
  EXPECT_NEAR(FormEnergy(regular, 2, 0, rows) / kRows, 0.25 * 2, 0.01);
  EXPECT_EQ(FormEnergy(regular, 2, 1, rows), 0);  // the other head has none
  // Each direction alone: the difference of the first head's channels is cheap.
  double sum = 0, difference = 0;
  for (std::size_t at = 0; at < rows.size(); at += 4) {
    sum += std::pow(rows[at] + rows[at + 1], 2) / 2;
    difference += std::pow(rows[at] - rows[at + 1], 2) / 2;
  }
  EXPECT_NEAR(sum / kRows * (0.95 * 160 + 5), 0.25, 0.01);
  EXPECT_NEAR(difference / kRows * (0.95 * 40 + 5), 0.25, 0.01);
}

TEST(MetricNoise, AddsAndRepeats) {
  const MetricNoise noise(kForms, 2);
  SplitMix64 first(7), second(7);
  std::vector<float> zero(8), shifted(8, 1.0F);
  noise.Add(1, 1, first, zero);
  noise.Add(1, 1, second, shifted);
  for (std::size_t i = 0; i < zero.size(); ++i) EXPECT_FLOAT_EQ(shifted[i], zero[i] + 1);
  EXPECT_EQ(zero[0], 0);
  EXPECT_NE(zero[2], 0);
}

TEST(MetricNoise, FormsOfNothingGiveWhiteNoise) {
  const MetricNoise noise(std::vector<float>(8), 2);
  EXPECT_NEAR(noise.rms(1), 1, 1e-6);
}

TEST(MetricNoise, EnergyTakesTheFormOfTheHead) {
  const std::vector<float> rows = {1, 1, 1, 1, 0, 0, 2, 0};
  EXPECT_FLOAT_EQ(FormEnergy(kForms, 2, 0, rows), 320);
  EXPECT_FLOAT_EQ(FormEnergy(kForms, 2, 1, rows), 5 + 4);
}

}  // namespace
}  // namespace kvserve
