#include "kernels/convert/finite_convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

constexpr DType kTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Every pattern of 16 bits, as halves or as the upper halves of float32.
std::vector<std::byte> AllPatterns(DType dtype, bool finite_only) {
  std::vector<std::byte> bytes;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const std::uint32_t magnitude = i & 0x7FFF;
    if (finite_only && magnitude >= (dtype == DType::kFloat16 ? 0x7C00U : 0x7F80U)) continue;
    const std::uint32_t bits = dtype == DType::kFloat32 ? i << 16 : i;
    const std::size_t at = bytes.size();
    bytes.resize(at + DTypeBytes(dtype));
    std::memcpy(&bytes[at], &bits, DTypeBytes(dtype));
  }
  return bytes;
}

TEST(FiniteConvert, WidensEveryFiniteValueExactlyAtAnyAddressAndLength) {
  for (const auto dtype : kTypes) {
    const auto bytes = AllPatterns(dtype, true);
    const std::size_t size = DTypeBytes(dtype);
    std::vector<float> expected(bytes.size() / size);
    ToFloatRef(dtype, bytes, expected);
    std::vector<std::byte> shifted(bytes.size() + 1);
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
    ForEachIsa([&] {
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{63}, expected.size()}) {
        std::vector<float> actual(count);
        EXPECT_TRUE(ToFloatFinite(dtype, std::span(shifted).subspan(1, count * size), actual));
        EXPECT_TRUE(count == 0 || std::memcmp(actual.data(), expected.data(), 4 * count) == 0)
            << DTypeName(dtype) << " " << count;
      }
    });
  }
}

TEST(FiniteConvert, TellsOneValueThatIsNotFiniteAnywhere) {
  for (const auto dtype : kTypes) {
    const auto all = AllPatterns(dtype, false);
    const std::size_t size = DTypeBytes(dtype);
    ForEachIsa([&] {
      for (std::size_t i = 0; i < 65536; i += 7) {
        std::vector<std::byte> bytes(37 * size);
        std::memcpy(&bytes[i % 37 * size], &all[i * size], size);
        std::vector<float> expected(37);
        ToFloatRef(dtype, bytes, expected);
        const bool finite = std::isfinite(expected[i % 37]);
        std::vector<float> actual(37);
        ASSERT_EQ(ToFloatFinite(dtype, bytes, actual), finite) << DTypeName(dtype) << " " << i;
        ASSERT_EQ(std::isfinite(actual[i % 37]), finite);
        ASSERT_EQ(std::isnan(actual[i % 37]), std::isnan(expected[i % 37]));
      }
    });
  }
}

// Random bit patterns and the neighbourhood of every boundary of rounding and range.
std::vector<float> HardNumbers() {
  std::vector<float> values = {kInfinity, -kInfinity, 0.0F, -0.0F};
  std::mt19937 random(7);
  for (int i = 0; i < 100000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  for (const std::uint32_t base :
       {0U, 0x33000000U, 0x33800000U, 0x387FE000U, 0x38800000U, 0x477FE000U, 0x477FF000U,
        0x7F7F0000U, 0x7F7F8000U, 0x7F800000U, 0x3F800000U}) {
    for (int d = -3; d <= 3; ++d) {
      for (const std::uint32_t sign : {0U, 0x80000000U}) {
        values.push_back(std::bit_cast<float>((base + static_cast<std::uint32_t>(d)) ^ sign));
      }
    }
  }
  std::erase_if(values, [](float value) { return std::isnan(value); });
  return values;
}

TEST(FiniteConvert, NarrowsToTheOraclesBitsAndNeverToInfinity) {
  const auto values = HardNumbers();
  for (const auto dtype : kTypes) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{3}, std::size_t{16}, std::size_t{35}, values.size()}) {
      const auto in = std::span(values).first(count);
      std::vector<std::byte> expected(count * DTypeBytes(dtype));
      EXPECT_TRUE(FromFloatFiniteRef(dtype, in, expected));
      std::vector<float> back(count);
      EXPECT_TRUE(ToFloatFinite(dtype, expected, back)) << DTypeName(dtype);
      ForEachIsa([&] {
        std::vector<std::byte> actual(expected.size());
        EXPECT_TRUE(FromFloatFinite(dtype, in, actual));
        EXPECT_TRUE(expected == actual) << DTypeName(dtype) << " " << count;
      });
    }
  }
}

TEST(FiniteConvert, RefusesEveryKindOfNan) {
  for (const std::uint32_t bits : {0x7FC00000U, 0x7F800001U, 0xFFFFFFFFU, 0xFF800001U}) {
    for (const auto dtype : kTypes) {
      ForEachIsa([&] {
        for (std::size_t at = 0; at < 37; ++at) {
          std::vector<float> values(37, kInfinity);
          values[at] = std::bit_cast<float>(bits);
          std::vector<std::byte> out(37 * DTypeBytes(dtype));
          ASSERT_FALSE(FromFloatFinite(dtype, values, out)) << DTypeName(dtype) << " " << at;
        }
      });
    }
  }
}

}  // namespace
}  // namespace kvserve
