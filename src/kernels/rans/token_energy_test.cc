#include "kernels/rans/token_energy.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvserve {
namespace {

TEST(TokenEnergy, LogarithmsAreThoseOfTheNineHighestBits) {
  for (std::uint64_t value :
       {1ULL, 2ULL, 3ULL, 255ULL, 256ULL, 257ULL, 511ULL, 1000ULL, 65535ULL, 65536ULL, 123456789ULL,
        1ULL << 40, (1ULL << 63) + (1ULL << 60), ~0ULL}) {
    const int drop = std::max(0, static_cast<int>(std::log2(static_cast<double>(value))) - 8);
    const std::uint64_t cut = value >> drop << drop;
    EXPECT_EQ(Log2In256ths(value),
              static_cast<std::int32_t>(std::lround(256 * std::log2(static_cast<double>(cut)))))
        << value;
  }
  for (std::uint32_t i = 256; i < 512; ++i) {
    EXPECT_EQ(Log2In256ths(i), std::lround(256 * std::log2(static_cast<double>(i)))) << i;
  }
}

TEST(TokenEnergy, IsZeroWhereSizesAreAsExpected) {
  for (const std::uint64_t sum : {0ULL, 1ULL, 100ULL, 40000ULL}) {
    EXPECT_EQ(TokenEnergy(sum, ExpectedLevel(256 * sum)), 0) << sum;
  }
  EXPECT_NEAR(TokenEnergy(400, ExpectedLevel(256 * 100)), 512, 3);
  EXPECT_NEAR(TokenEnergy(100, ExpectedLevel(256 * 400)), -512, 3);
}

TEST(TokenEnergy, ShiftsAreRoundedQuarterOctaves) {
  const auto shift = [](std::array<std::int16_t, 4> weights, std::array<std::int32_t, 3> energies) {
    return EnergyShift(weights, energies);
  };
  EXPECT_EQ(shift({0, 0, 0, 0}, {999, 999, 999}), 0);
  EXPECT_EQ(shift({31, 0, 0, 0}, {}), 0);
  EXPECT_EQ(shift({32, 0, 0, 0}, {}), 1);  // half a quarter goes up
  EXPECT_EQ(shift({-32, 0, 0, 0}, {}), 0);
  EXPECT_EQ(shift({-33, 0, 0, 0}, {}), -1);
  EXPECT_EQ(shift({0, 256, 0, 0}, {256, 0, 0}), 4);
  EXPECT_EQ(shift({0, 64, 128, -256}, {256, 256, 128}), 1);
  EXPECT_EQ(shift({0, 32767, 32767, 32767}, {20000, 20000, 20000}), 60);
  EXPECT_EQ(shift({0, 32767, 0, 0}, {-20000, 0, 0}), -60);
}

}  // namespace
}  // namespace kvserve
