#include "kernels/convert/raw_floats.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvserve {
namespace {

std::vector<std::byte> Written(DType cache, const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  WriteRawFloats(cache, values, out);
  return bytes;
}

TEST(RawFloats, SixteenBitsOnlyWhereTheyHoldTheValues) {
  EXPECT_EQ(Written(DType::kFloat16, {0.5F, -3.0F}).size(), 5U);
  EXPECT_EQ(Written(DType::kBFloat16, {0.0F, 0.0F}).size(), 5U);
  EXPECT_EQ(Written(DType::kFloat32, {0.5F, -3.0F}).size(), 9U);
  EXPECT_EQ(Written(DType::kBFloat16, {0.0F, 1e5F}).size(), 9U);
  EXPECT_EQ(Written(DType::kBFloat16, {0.0F, 1e-3F}).size(), 9U);
}

TEST(RawFloats, AreReadBack) {
  const std::vector<float> values = {0.5F, -3.0F, 1024.0F};
  for (const DType cache : {DType::kFloat16, DType::kFloat32}) {
    const auto bytes = Written(cache, values);
    std::vector<float> back(values.size());
    ByteReader in(bytes);
    ASSERT_TRUE(ReadRawFloats(in, back));
    EXPECT_EQ(back, values);
    EXPECT_EQ(in.remaining(), 0U);
  }
}

TEST(RawFloats, DamageIsRefused) {
  auto bytes = Written(DType::kFloat16, {0.5F, -3.0F});
  std::vector<float> back(2);
  ByteReader cut(std::span<const std::byte>(bytes).first(4));
  EXPECT_FALSE(ReadRawFloats(cut, back));
  bytes[0] = std::byte{2};
  ByteReader unknown(bytes);
  EXPECT_FALSE(ReadRawFloats(unknown, back));
}

}  // namespace
}  // namespace kvserve
