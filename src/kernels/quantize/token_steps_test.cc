#include "kernels/quantize/token_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

std::vector<float> Values(std::size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 30.0F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {0.5F, 1.5F, -2.5F, 127.5F, -127.5F, 1e30F, -1e30F, inf, -0.0F, 127.49F};
  for (std::size_t i = 0; i < count; i += 17) values[i] = special[i / 17 % std::size(special)];
  return values;
}

TEST(TokenSteps, EveryTargetGivesTheOraclesBits) {
  for (const std::size_t columns : {1U, 7U, 16U, 33U, 192U}) {
    std::vector<std::uint8_t> classes;
    for (std::uint8_t c = 0; c < kStepClasses; ++c) classes.push_back(c);
    classes.push_back(255);
    for (const std::vector<std::uint8_t>& used : {classes, std::vector<std::uint8_t>()}) {
      auto expected = Values(14 * columns);
      std::vector<std::uint8_t> symbols(expected.size());
      const bool beyond = QuantizeTokenStepsRef(expected, columns, used, symbols.data());
      std::vector<float> restored(expected.size());
      DequantizeTokenStepsRef(symbols, columns, used, restored.data());
      ForEachIsa([&] {
        auto values = Values(14 * columns);
        std::vector<std::uint8_t> coded(values.size(), 99);
        EXPECT_EQ(QuantizeTokenSteps(values, columns, used, coded.data()), beyond);
        EXPECT_EQ(values, expected);
        EXPECT_EQ(coded, symbols);
        std::vector<float> decoded(values.size());
        DequantizeTokenSteps(coded, columns, used, decoded.data());
        EXPECT_EQ(decoded, restored);
      });
    }
  }
}

TEST(TokenSteps, AreHalfOctavesApart) {
  for (std::uint8_t c = 0; c < kStepClasses; ++c) {
    EXPECT_NEAR(TokenStep(c), std::exp2((6 - c) / 2.0), 1e-6 * TokenStep(c));
    EXPECT_NEAR(TokenGain(c) * TokenStep(c), 1.0, 2e-7);
    std::vector<float> values = {5.2F * TokenStep(c), -126.6F * TokenStep(c), 128 * TokenStep(c)};
    std::vector<std::uint8_t> symbols(3);
    const std::vector<std::uint8_t> classes = {c};
    EXPECT_TRUE(QuantizeTokenSteps(values, 3, classes, symbols.data()));
    EXPECT_EQ(symbols, (std::vector<std::uint8_t>{132, 0, 254}));
    EXPECT_EQ(values[0], 5 * TokenStep(c));
    EXPECT_EQ(values[1], -127 * TokenStep(c));
    EXPECT_EQ(values[2], 128 * TokenStep(c));  // as it was
  }
}

// A dropped token costs nothing and says nothing.
TEST(TokenSteps, RowsOfOtherClassesAreZero) {
  std::vector<float> values = {50.0F, 1e20F, -3.0F};
  std::vector<std::uint8_t> symbols(3);
  const std::vector<std::uint8_t> classes = {255};
  EXPECT_FALSE(QuantizeTokenSteps(values, 3, classes, symbols.data()));
  EXPECT_EQ(symbols, (std::vector<std::uint8_t>(3, 127)));
  EXPECT_EQ(values, (std::vector<float>(3, 0.0F)));
}

}  // namespace
}  // namespace kvserve
