#include "tensorfile/dtype_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
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

TEST(ConvertDType, RefusesReservedTypes) {
  const auto in = Plane<std::uint16_t>(DType::kBFloat16, {0});
  KvBuffer out;
  EXPECT_EQ(ConvertDType(in.view(), DType::kFloat8E5M2, OutOfRangePolicy::kClamp, out).error().code,
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace kvserve
