#include "kernels/fp8/fp8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/convert/convert.h"
#include "kernels/convert/finite_convert.h"
#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

constexpr DType kTypes[] = {DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2,
                            DType::kFloat8E5M2FNUZ};

std::vector<std::byte> AllCodes() {
  std::vector<std::byte> codes(256);
  for (std::size_t i = 0; i < 256; ++i) codes[i] = static_cast<std::byte>(i);
  return codes;
}

float Widened(DType dtype, int code) {
  const auto byte = static_cast<std::byte>(code);
  float value = 0.0F;
  (void)Fp8ToFloat(dtype, {&byte, 1}, {&value, 1});
  return value;
}

int Narrowed(DType dtype, float value) {
  std::byte code{};
  (void)FloatToFp8(dtype, {&value, 1}, {&code, 1}, true);
  return static_cast<int>(code);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Fp8, CodesHaveTheValuesOfTheirFormat) {
  EXPECT_EQ(Widened(DType::kFloat8E4M3FN, 0x40), 2.0F);
  EXPECT_EQ(Widened(DType::kFloat8E4M3FNUZ, 0x40), 1.0F);
  EXPECT_EQ(Widened(DType::kFloat8E5M2, 0x40), 2.0F);
  EXPECT_EQ(Widened(DType::kFloat8E5M2FNUZ, 0x40), 1.0F);
  EXPECT_TRUE(std::signbit(Widened(DType::kFloat8E4M3FN, 0x80)));
  EXPECT_EQ(Widened(DType::kFloat8E4M3FN, 0x80), 0.0F);
  EXPECT_TRUE(std::isnan(Widened(DType::kFloat8E4M3FNUZ, 0x80)));
  EXPECT_TRUE(std::isnan(Widened(DType::kFloat8E5M2FNUZ, 0x80)));
  EXPECT_TRUE(std::isnan(Widened(DType::kFloat8E4M3FN, 0x7F)));
  EXPECT_TRUE(std::isnan(Widened(DType::kFloat8E4M3FN, 0xFF)));
  EXPECT_EQ(Widened(DType::kFloat8E5M2, 0xFC), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(LargestFp8(DType::kFloat8E4M3FN), 448.0F);
  EXPECT_EQ(LargestFp8(DType::kFloat8E4M3FNUZ), 240.0F);
  EXPECT_EQ(LargestFp8(DType::kFloat8E5M2), 57344.0F);
  EXPECT_EQ(LargestFp8(DType::kFloat8E5M2FNUZ), 57344.0F);
  EXPECT_EQ(Widened(DType::kFloat8E4M3FN, 1), 0x1p-9F);
  EXPECT_EQ(Widened(DType::kFloat8E4M3FNUZ, 1), 0x1p-10F);
  EXPECT_EQ(Widened(DType::kFloat8E5M2, 1), 0x1p-16F);
  EXPECT_EQ(Widened(DType::kFloat8E5M2FNUZ, 1), 0x1p-17F);
}

// E5M2 is the upper byte of a float16.
TEST(Fp8, E5M2IsTheUpperHalfOfFloat16) {
  for (int code = 0; code < 256; ++code) {
    const float half = Float16ToFloat(static_cast<std::uint16_t>(code << 8));
    const float value = Widened(DType::kFloat8E5M2, code);
    if (std::isnan(half)) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(half)) << code;
    }
  }
}

TEST(Fp8, EveryCodeWidensAsTheOracleAndComesBack) {
  const auto codes = AllCodes();
  for (const DType dtype : kTypes) {
    std::vector<float> expected(256);
    EXPECT_FALSE(Fp8ToFloatRef(dtype, codes, expected));
    ForEachIsa([&] {
      std::vector<float> values(256);
      EXPECT_FALSE(Fp8ToFloat(dtype, codes, values));
      EXPECT_TRUE(SameBits(values, expected)) << DTypeName(dtype);
      std::vector<std::byte> back(256);
      EXPECT_EQ(FloatToFp8(dtype, values, back, true), 0U);
      for (int code = 0; code < 256; ++code) {
        if (!std::isnan(values[static_cast<std::size_t>(code)])) {
          ASSERT_EQ(static_cast<int>(back[static_cast<std::size_t>(code)]), code);
        } else {
          ASSERT_TRUE(
              std::isnan(Widened(dtype, static_cast<int>(back[static_cast<std::size_t>(code)]))));
        }
      }
      EXPECT_TRUE(Fp8ToFloat(dtype, std::span(codes).first(0x78), std::span(values).first(0x78)));
    });
  }
}

// The nearest of all finite codes, told by search; of two as near the even one.
int NearestCode(DType dtype, float value) {
  const Fp8Format format = Fp8FormatOf(dtype);
  if (std::fabs(value) > 2.0F * LargestFp8(dtype)) {
    return format.largest | (std::signbit(value) ? 0x80 : 0);
  }
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int code = 0; code <= format.largest; ++code) {
    const double distance = std::fabs(std::fabs(double{value}) - Widened(dtype, code));
    if (distance < least || (distance == least && code % 2 == 0)) {
      least = distance;
      best = code;
    }
  }
  const bool negative = std::signbit(value) && !(format.fnuz && best == 0);
  return negative ? best | 0x80 : best;
}

void CheckAllHalves(DType half) {
  std::vector<std::byte> bytes(2 * 65536);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    std::memcpy(&bytes[2 * i], &bits, 2);
  }
  std::vector<float> values(65536);
  ToFloat(half, bytes, values);
  for (const DType dtype : kTypes) {
    std::vector<std::byte> expected(65536);
    const std::size_t saturated = FloatToFp8Ref(dtype, values, expected, true);
    EXPECT_GT(saturated, 0U);
    for (std::size_t i = 0; i < 65536; i += 7) {
      if (!std::isfinite(values[i])) continue;
      ASSERT_EQ(static_cast<int>(expected[i]), NearestCode(dtype, values[i]))
          << DTypeName(dtype) << " " << values[i];
    }
    ForEachIsa([&] {
      std::vector<std::byte> codes(65536);
      EXPECT_EQ(FloatToFp8(dtype, values, codes, true), saturated);
      EXPECT_TRUE(codes == expected) << DTypeName(dtype);
      std::vector<std::byte> finite(65536);
      FloatToFp8(dtype, values, finite, false);
      for (std::size_t i = 0; i < 65536; ++i) {
        const float back = Widened(dtype, static_cast<int>(finite[i]));
        ASSERT_EQ(std::isnan(values[i]), std::isnan(back));
        ASSERT_FALSE(std::isinf(back));
      }
    });
  }
}

TEST(Fp8, EveryFloat16NarrowsToTheNearestCode) {
  CheckAllHalves(DType::kFloat16);
}

TEST(Fp8, EveryBFloat16NarrowsToTheNearestCode) {
  CheckAllHalves(DType::kBFloat16);
}

// Around every code and every middle between two, where rounding is decided.
TEST(Fp8, TiesGoToEvenInFloat32) {
  for (const DType dtype : kTypes) {
    std::vector<float> values;
    for (int code = 0; code < Fp8FormatOf(dtype).largest; ++code) {
      const float middle = 0.5F * (Widened(dtype, code) + Widened(dtype, code + 1));
      for (const float value :
           {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F)}) {
        values.push_back(value);
        values.push_back(-value);
      }
    }
    ForEachIsa([&] {
      std::vector<std::byte> codes(values.size());
      EXPECT_EQ(FloatToFp8(dtype, values, codes, true), 0U);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(static_cast<int>(codes[i]), NearestCode(dtype, values[i])) << values[i];
      }
    });
  }
}

// A cast far above 448 must give 448, not NaN, and say how often.
TEST(Fp8, LargeValuesBecomeTheLargestAndAreCounted) {
  const std::vector<float> values = {448.0F, 449.0F,  464.0F,
                                     480.0F, 1e4F,    65504.0F,
                                     -1e6F,  3.4e38F, std::numeric_limits<float>::infinity()};
  ForEachIsa([&] {
    std::vector<std::byte> codes(values.size());
    EXPECT_EQ(FromFloat(DType::kFloat8E4M3FN, values, codes), 6U);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(codes[i], std::byte(values[i] < 0 ? 0xFE : 0x7E)) << values[i];
    }
    EXPECT_TRUE(FromFloatFinite(DType::kFloat8E5M2, values, codes));
    EXPECT_EQ(codes.back(), std::byte{0x7B});
    (void)FromFloat(DType::kFloat8E5M2, values, codes);
    EXPECT_EQ(codes.back(), std::byte{0x7C});
  });
}

TEST(Fp8, NanStaysNanAndIsReported) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values(33, nan);
  for (const DType dtype : kTypes) {
    ForEachIsa([&] {
      std::vector<std::byte> codes(33);
      EXPECT_FALSE(FromFloatFinite(dtype, values, codes));
      EXPECT_EQ(FromFloat(dtype, values, codes), 0U);
      for (const std::byte code : codes) {
        EXPECT_TRUE(std::isnan(Widened(dtype, static_cast<int>(code))));
      }
      std::vector<float> back(33);
      EXPECT_FALSE(ToFloatFinite(dtype, codes, back));
    });
  }
  EXPECT_EQ(Narrowed(DType::kFloat8E4M3FNUZ, -0.0F), 0);
  EXPECT_EQ(Narrowed(DType::kFloat8E4M3FNUZ, -1e-9F), 0);
}

}  // namespace
}  // namespace kvserve
