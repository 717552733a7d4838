#include "base/byte_io.h"

#include <gtest/gtest.h>

namespace kvserve {
namespace {

TEST(ByteIo, VarintsRoundTrip) {
  const std::uint64_t values[] = {0, 1, 127, 128, 300, 1ULL << 32, 1ULL << 63, UINT64_MAX};
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  for (const auto value : values) writer.PutVarint(value);
  ByteReader reader(bytes);
  for (const auto value : values) EXPECT_EQ(reader.GetVarint().value(), value);
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(ByteIo, VarintsHaveOneEncoding) {
  const std::vector<std::byte> padded = {std::byte{0x80}, std::byte{0x00}};
  EXPECT_EQ(ByteReader(padded).GetVarint().error().code, ErrorCode::kCorruptData);
  std::vector<std::byte> too_long(9, std::byte{0xFF});
  too_long.push_back(std::byte{0x02});
  EXPECT_EQ(ByteReader(too_long).GetVarint().error().code, ErrorCode::kCorruptData);
}

TEST(ByteIo, TruncationConsumesNothing) {
  const std::vector<std::byte> bytes(3, std::byte{0xFF});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.Get<std::uint32_t>().error().code, ErrorCode::kCorruptData);
  EXPECT_EQ(reader.GetVarint().error().code, ErrorCode::kCorruptData);
  EXPECT_EQ(reader.GetBytes(4).error().code, ErrorCode::kCorruptData);
  EXPECT_EQ(reader.remaining(), 3U);
}

}  // namespace
}  // namespace kvserve
