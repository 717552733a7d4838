#include "tensorfile/dtype_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/half.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;

// One layer, single plane, one head; values as raw elements of `dtype`.
template <typename T>
KvBuffer Plane(DType dtype, const std::vector<T>& values) {
  KvBuffer buffer;
  const auto tokens = static_cast<std::uint32_t>(values.size());
  EXPECT_TRUE(buffer.Resize({dtype, {{1, 1, 0}}}, {0, tokens}, tokens));
  std::memcpy(buffer.view().layers[0].k.data, values.data(), values.size() * sizeof(T));
  return buffer;
}

std::uint16_t Element16(const KvBuffer& buffer, std::uint32_t token) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, buffer.view().layers[0].k.at(token, 0, 0), sizeof(bits));
  return bits;
}

TEST(ConvertDType, ConvertsTheValueNotTheBits) {
  const auto in = Plane<std::uint16_t>(DType::kBFloat16, {0x433C});  // 188.0
  KvBuffer out;
  const auto clamped = ConvertDType(in.view(), DType::kFloat16, OutOfRangePolicy::kRefuse, out);
  ASSERT_TRUE(clamped);
  EXPECT_EQ(*clamped, 0U);
  EXPECT_EQ(out.geometry().dtype, DType::kFloat16);
  EXPECT_EQ(Float16ToFloat(Element16(out, 0)), 188.0F);  // 3.617 if the bits were kept
}

TEST(ConvertDType, RefusesOrClampsAndCounts) {
  const auto in = Plane<std::uint16_t>(
      DType::kBFloat16, {FloatToBFloat16(65536), FloatToBFloat16(-1e30F), FloatToBFloat16(65280)});
  KvBuffer out;
  const auto refused = ConvertDType(in.view(), DType::kFloat16, OutOfRangePolicy::kRefuse, out);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(refused.error().message, HasSubstr("2 values are beyond the range of float16"));
  const auto clamped = ConvertDType(in.view(), DType::kFloat16, OutOfRangePolicy::kClamp, out);
  ASSERT_TRUE(clamped);
  EXPECT_EQ(*clamped, 2U);
  EXPECT_EQ(Float16ToFloat(Element16(out, 0)), 65504.0F);
  EXPECT_EQ(Float16ToFloat(Element16(out, 1)), -65504.0F);
  EXPECT_EQ(Float16ToFloat(Element16(out, 2)), 65280.0F);
}

TEST(ConvertDType, RoundsFloat32ToNearestEven) {
  const auto in = Plane<float>(
      DType::kFloat32, {std::bit_cast<float>(0x3F808000U), std::bit_cast<float>(0x3F818000U),
                        std::bit_cast<float>(0x7F7FFFFFU), INFINITY, NAN});
  KvBuffer out;
  const auto clamped = ConvertDType(in.view(), DType::kBFloat16, OutOfRangePolicy::kClamp, out);
  ASSERT_TRUE(clamped);
  EXPECT_EQ(*clamped, 1U);  // FLT_MAX would round to infinity
  EXPECT_EQ(Element16(out, 0), 0x3F80);
  EXPECT_EQ(Element16(out, 1), 0x3F82);
  EXPECT_EQ(Element16(out, 2), 0x7F7F);
  EXPECT_EQ(Element16(out, 3), 0x7F80);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(Element16(out, 4))));
}

TEST(ConvertDType, Fp8FormsAreConvertedByValue) {
  const auto in = Plane<std::uint8_t>(DType::kFloat8E4M3FN, {0x40, 0x7E, 0x80, 0x7F});
  KvBuffer out;
  ASSERT_TRUE(ConvertDType(in.view(), DType::kFloat16, OutOfRangePolicy::kRefuse, out));
  EXPECT_EQ(Element16(out, 0), 0x4000);
  EXPECT_EQ(Element16(out, 1), 0x5F00);  // 448
  EXPECT_EQ(Element16(out, 2), 0x8000);
  EXPECT_TRUE(std::isnan(Float16ToFloat(Element16(out, 3))));
  // 448 is beyond the 240 of FNUZ, where 2.0 has another code and -0 none.
  const auto refused =
      ConvertDType(in.view(), DType::kFloat8E4M3FNUZ, OutOfRangePolicy::kRefuse, out);
  EXPECT_EQ(refused.error().code, ErrorCode::kBadInput);
  const auto clamped =
      ConvertDType(in.view(), DType::kFloat8E4M3FNUZ, OutOfRangePolicy::kClamp, out);
  ASSERT_TRUE(clamped);
  EXPECT_EQ(*clamped, 1U);
  const auto code = [&](std::uint32_t token) { return *out.view().layers[0].k.at(token, 0, 0); };
  EXPECT_EQ(code(0), std::byte{0x48});
  EXPECT_EQ(code(1), std::byte{0x7F});
  EXPECT_EQ(code(2), std::byte{0x00});
  EXPECT_EQ(code(3), std::byte{0x80});
}

// Case A07: every code of every fp8 type into every other: the value that it has or the nearest
// one, never the value that its bits have there.
TEST(ConvertDType, NoFp8TypeIsTakenForAnother) {
  constexpr DType kTypes[] = {DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2,
                              DType::kFloat8E5M2FNUZ};
  std::vector<std::uint8_t> codes(256);
  std::iota(codes.begin(), codes.end(), 0);
  const auto values = [](const KvBuffer& kv) {
    KvBuffer wide;
    EXPECT_TRUE(ConvertDType(kv.view(), DType::kFloat32, OutOfRangePolicy::kRefuse, wide));
    std::vector<float> floats(256);
    std::memcpy(floats.data(), wide.view().layers[0].k.data, 256 * sizeof(float));
    return floats;
  };
  for (const DType from : kTypes) {
    const KvBuffer in = Plane<std::uint8_t>(from, codes);
    const std::vector<float> wanted = values(in);
    for (const DType to : kTypes) {
      KvBuffer out;
      ASSERT_TRUE(ConvertDType(in.view(), to, OutOfRangePolicy::kClamp, out));
      EXPECT_EQ(out.geometry().dtype, to);
      const std::vector<float> found = values(out);
      const std::vector<float> range = values(Plane<std::uint8_t>(to, codes));
      for (std::size_t i = 0; i < codes.size(); ++i) {
        if (std::isnan(wanted[i])) {
          EXPECT_TRUE(std::isnan(found[i]));
          continue;
        }
        // No finite value of the target is nearer.
        for (const float other : range) {
          if (!std::isfinite(other) || !std::isfinite(wanted[i])) continue;
          EXPECT_LE(std::fabs(found[i] - wanted[i]), std::fabs(other - wanted[i]))
              << DTypeName(from) << " " << i << " as " << DTypeName(to);
        }
      }
    }
  }
}

TEST(ConvertDType, OpaqueBytesHaveNoValue) {
  const auto bytes = Plane<std::uint8_t>(DType::kUint8, {1, 2});
  const auto halves = Plane<std::uint16_t>(DType::kFloat16, {0});
  KvBuffer out;
  auto error = ConvertDType(bytes.view(), DType::kFloat16, OutOfRangePolicy::kClamp, out).error();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("opaque"));
  error = ConvertDType(halves.view(), DType::kUint8, OutOfRangePolicy::kClamp, out).error();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_TRUE(ConvertDType(bytes.view(), DType::kUint8, OutOfRangePolicy::kRefuse, out));
}

}  // namespace
}  // namespace kvserve
