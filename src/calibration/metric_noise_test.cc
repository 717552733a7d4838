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
  noise.Add(0.5, random, rows);
  double squares = 0;
  for (const float value : rows) squares += double{value} * value;
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(rows.size())), 0.5 * noise.rms(),
              0.01 * noise.rms());
  const float added = 0.05F * (100 + 100 + 1 + 4) / 4;
  std::vector<float> regular = kForms;
  for (float& value : regular) value *= 0.95F;
  for (const std::size_t diagonal : {0, 3, 4, 7}) regular[diagonal] += added;
  EXPECT_NEAR(FormEnergy(regular, 2, rows) / kRows, 0.25 * 4, 0.02);
  // Each direction alone: the difference of the first head's channels is cheap.
  double sum = 0, difference = 0;
  for (std::size_t at = 0; at < rows.size(); at += 4) {
    sum += std::pow(rows[at] + rows[at + 1], 2) / 2;
    difference += std::pow(rows[at] - rows[at + 1], 2) / 2;
  }
  EXPECT_NEAR(sum / kRows * (0.95 * 160 + added), 0.25, 0.01);
  EXPECT_NEAR(difference / kRows * (0.95 * 40 + added), 0.25, 0.01);
}

TEST(MetricNoise, AddsAndRepeats) {
  const MetricNoise noise(kForms, 2);
  SplitMix64 first(7), second(7);
  std::vector<float> zero(8), shifted(8, 1.0F);
  noise.Add(1, first, zero);
  noise.Add(1, second, shifted);
  for (std::size_t i = 0; i < zero.size(); ++i) EXPECT_FLOAT_EQ(shifted[i], zero[i] + 1);
}

TEST(MetricNoise, FormsOfNothingGiveWhiteNoise) {
  const MetricNoise noise(std::vector<float>(8), 2);
  EXPECT_NEAR(noise.rms(), 1, 1e-6);
}

TEST(MetricNoise, EnergyTakesTheFormOfEachHead) {
  const std::vector<float> rows = {1, 1, 1, 1, 0, 0, 2, 0};
  EXPECT_FLOAT_EQ(FormEnergy(kForms, 2, rows), 320 + 5 + 4);
}

}  // namespace
}  // namespace kvserve
