#include "kernels/convert/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

constexpr DType kTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32};

std::vector<std::byte> AllHalves() {
  std::vector<std::byte> bytes(2 * 65536);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
  return bytes;
}

// Random bit patterns, plus the neighbourhood of every rounding and range boundary.
std::vector<float> HardFloats() {
  std::vector<float> values;
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) values.push_back(std::bit_cast<float>(std::uint32_t(random())));
  for (const std::uint32_t base :
       {0U, 0x33000000U, 0x33800000U, 0x387FE000U, 0x38800000U, 0x477FE000U, 0x477FF000U,
        0x7F7F0000U, 0x7F7F8000U, 0x7F800000U, 0x7FC00000U, 0x3F800000U}) {
    for (int d = -3; d <= 3; ++d) {
      for (const std::uint32_t sign : {0U, 0x80000000U}) {
        values.push_back(std::bit_cast<float>((base + static_cast<std::uint32_t>(d)) ^ sign));
      }
    }
  }
  return values;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST(Convert, EveryHalfWidensAsTheOracle) {
  const auto bytes = AllHalves();
  for (const auto dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<float> expected(65536);
    ToFloatRef(dtype, bytes, expected);
    ForEachIsa([&] {
      std::vector<float> actual(65536);
      ToFloat(dtype, bytes, actual);
      EXPECT_TRUE(SameBits(expected, actual)) << DTypeName(dtype);
    });
  }
}

TEST(Convert, NarrowsAsTheOracleForEveryLengthOfTail) {
  const auto values = HardFloats();
  for (const auto dtype : kTypes) {
    for (std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{33}, values.size()}) {
      const std::span<const float> in(values.data(), count);
      std::vector<std::byte> expected(count * DTypeBytes(dtype));
      const auto saturated = FromFloatRef(dtype, in, expected);
      ForEachIsa([&] {
        std::vector<std::byte> actual(expected.size());
        EXPECT_EQ(FromFloat(dtype, in, actual), saturated);
        EXPECT_TRUE(expected == actual) << DTypeName(dtype) << " count " << count;
      });
    }
  }
}

TEST(Convert, EveryNonNanHalfSurvivesTheRoundTrip) {
  const auto bytes = AllHalves();
  for (const auto dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<float> floats(65536);
    ToFloat(dtype, bytes, floats);
    std::vector<std::byte> back(bytes.size());
    EXPECT_EQ(FromFloat(dtype, floats, back), 0U);
    for (std::size_t i = 0; i < 65536; ++i) {
      if (std::isnan(floats[i])) continue;
      ASSERT_EQ(std::memcmp(&bytes[2 * i], &back[2 * i], 2), 0) << i;
    }
  }
}

// 188.0 in bfloat16 is 0x433C; read as float16 it would be 3.617.
TEST(Convert, BFloat16IsConvertedToFloat16NotReinterpreted) {
  const std::uint16_t bits = 0x433C;
  float value = 0.0F;
  ToFloat(DType::kBFloat16, std::as_bytes(std::span(&bits, 1)), std::span(&value, 1));
  EXPECT_EQ(value, 188.0F);
  std::uint16_t half = 0;
  EXPECT_EQ(
      FromFloat(DType::kFloat16, std::span(&value, 1), std::as_writable_bytes(std::span(&half, 1))),
      0U);
  ToFloat(DType::kFloat16, std::as_bytes(std::span(&half, 1)), std::span(&value, 1));
  EXPECT_EQ(value, 188.0F);
}

TEST(Convert, OutOfRangeIsClampedAndCountedInfinityIsKept) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {65519.0F, 65520.0F, -1e30F, infinity, -infinity, 1.0F};
  ForEachIsa([&] {
    std::vector<std::byte> halves(2 * values.size());
    EXPECT_EQ(FromFloat(DType::kFloat16, values, halves), 2U);
    std::vector<float> back(values.size());
    ToFloat(DType::kFloat16, halves, back);
    EXPECT_EQ(back, (std::vector<float>{65504.0F, 65504.0F, -65504.0F, infinity, -infinity, 1.0F}));
  });
}

}  // namespace
}  // namespace kvserve
