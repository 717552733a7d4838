#include "kernels/rotate/rotate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

constexpr RopeStyle kStyles[] = {RopeStyle::kHalves, RopeStyle::kInterleaved};

std::vector<float> Gaussian(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::uint64_t> Turns(float theta, std::uint32_t dim) {
  std::vector<std::uint64_t> turns(RopePairs(dim), 1);
  RopeTurns(theta, dim, turns);
  return turns;
}

TEST(RopeTurns, AreTheFrequencies) {
  for (const float theta : {100.0F, 10000.0F, 500000.0F, 1e6F, 1.5F}) {
    for (const std::uint32_t dim : {2U, 64U, 80U, 128U, 256U}) {
      const auto turns = Turns(theta, dim);
      ASSERT_EQ(turns.size() % 16, 0U);
      for (std::size_t i = 0; i < turns.size(); ++i) {
        if (i >= dim / 2) {
          EXPECT_EQ(turns[i], 0U);
          continue;
        }
        const long double frequency =
            std::pow(static_cast<long double>(theta), -2.0L * static_cast<long double>(i) / dim) /
            (2 * std::numbers::pi_v<long double>);
        const auto found = static_cast<long double>(turns[i]) * 0x1p-64L;
        EXPECT_NEAR(static_cast<double>(found - frequency), 0.0,
                    static_cast<double>(0x1p-44L * frequency + 0x1p-64L))
            << theta << " " << i;
      }
    }
  }
}

// On the wire by theta alone: a change of these bits would garble every stored frame.
TEST(RopeTurns, ArePinned) {
  const auto turns = Turns(10000.0F, 8);
  EXPECT_EQ(turns[0], 2935890503282001408U);
  EXPECT_EQ(turns[1], 293589050328200128U);
  EXPECT_EQ(turns[3], 2935890503282001U);
  // Every positive theta has its frequencies, also where they exceed a circle.
  for (const float theta : {1e-38F, 1e-3F, 3e38F}) {
    for (const auto turn : Turns(theta, 64)) (void)turn;
  }
}

TEST(Rotate, EveryTargetGivesTheOraclesBits) {
  for (const std::uint32_t dim : {2U, 6U, 16U, 64U, 80U, 100U, 256U, 300U}) {
    for (const RopeStyle style : kStyles) {
      const auto turns = Turns(10000.0F, dim);
      const RopeRows rope{style, dim, 3, 4091, turns};
      const auto input = Gaussian(std::size_t{11} * 3 * dim, dim);
      auto undone = input, applied = input;
      UndoRopeRef(undone, rope);
      ApplyRopeRef(applied, rope);
      ForEachIsa([&] {
        auto values = input;
        UndoRope(values, rope);
        EXPECT_EQ(std::memcmp(values.data(), undone.data(), values.size() * 4), 0) << dim;
        values = input;
        ApplyRope(values, rope);
        EXPECT_EQ(std::memcmp(values.data(), applied.data(), values.size() * 4), 0) << dim;
      });
    }
  }
}

// Sines and cosines of every size of angle, in one pair of a single head.
TEST(Rotate, TurnsByPositionTimesFrequency) {
  for (const RopeStyle style : kStyles) {
    const std::uint32_t dim = 64;
    const auto turns = Turns(10000.0F, dim);
    for (const std::uint32_t position : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 100U, 8191U, 1000000U}) {
      std::vector<float> values(dim, 0.0F);
      const bool halves = style == RopeStyle::kHalves;
      for (std::size_t i = 0; i < dim / 2; ++i) values[halves ? i : 2 * i] = 1.0F;
      ApplyRope(values, {style, dim, 1, position, turns});
      for (std::size_t i = 0; i < dim / 2; ++i) {
        const long double angle =
            position * std::pow(10000.0L, -2.0L * static_cast<long double>(i) / dim);
        EXPECT_NEAR(values[halves ? i : 2 * i], static_cast<double>(std::cos(angle)), 1e-7);
        EXPECT_NEAR(values[halves ? i + dim / 2 : 2 * i + 1], static_cast<double>(std::sin(angle)),
                    1e-7);
      }
    }
  }
}

TEST(Rotate, ApplyAfterUndoRestoresEveryPair) {
  for (const RopeStyle style : kStyles) {
    const std::uint32_t dim = 128;
    const auto turns = Turns(500000.0F, dim);
    const RopeRows rope{style, dim, 2, 100000, turns};
    const auto input = Gaussian(std::size_t{64} * 2 * dim, 9);
    auto values = input;
    UndoRope(values, rope);
    EXPECT_NE(values, input);
    ApplyRope(values, rope);
    const std::size_t second = style == RopeStyle::kHalves ? dim / 2 : 1;
    for (std::size_t head = 0; head < input.size(); head += dim) {
      for (std::size_t i = 0; i < dim / 2; ++i) {
        const std::size_t a = head + (style == RopeStyle::kHalves ? i : 2 * i);
        const std::size_t b = a + second;
        const double length = std::hypot(input[a], input[b]);
        EXPECT_LE(std::hypot(double{values[a]} - input[a], double{values[b]} - input[b]),
                  0x1p-21 * length);
      }
    }
  }
}

TEST(Rotate, PositionsBeginWhereTheyAreSaid) {
  const std::uint32_t dim = 16;
  const auto turns = Turns(10000.0F, dim);
  const auto input = Gaussian(std::size_t{8} * dim, 4);
  auto whole = input, parts = input;
  UndoRope(whole, {RopeStyle::kHalves, dim, 1, 50, turns});
  for (std::uint32_t row = 0; row < 8; ++row) {
    UndoRope(std::span(parts).subspan(row * dim, dim),
             {RopeStyle::kHalves, dim, 1, 50 + row, turns});
  }
  EXPECT_EQ(whole, parts);
}

}  // namespace
}  // namespace kvserve
