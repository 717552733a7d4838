#include "base/half.h"

#include <gtest/gtest.h>
#include <cmath>
#include <limits>

namespace kvserve {
namespace {

TEST(Half, EveryFloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = Float16ToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Float16ToFloat(FloatToFloat16(value))));
    } else {
      EXPECT_EQ(FloatToFloat16(value), half);
    }
  }
}

TEST(Half, EveryBFloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = BFloat16ToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(value))));
    } else {
      EXPECT_EQ(FloatToBFloat16(value), half);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(FloatToFloat16(1.0F + 0x1p-11F), 0x3C00);             // tie, down to even
  EXPECT_EQ(FloatToFloat16(1.0F + 0x1p-10F + 0x1p-11F), 0x3C02);  // tie, up to even
  EXPECT_EQ(FloatToFloat16(65519.0F), 0x7BFF);
  EXPECT_EQ(FloatToFloat16(65520.0F), 0x7C00);
  EXPECT_EQ(FloatToFloat16(-0x1p-25F), 0x8000);  // tie between 0 and the smallest subnormal
  EXPECT_EQ(FloatToFloat16(0x1.8p-25F), 0x0001);
  EXPECT_EQ(FloatToBFloat16(188.0F), 0x433C);
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7F80);
}

}  // namespace
}  // namespace kvserve
