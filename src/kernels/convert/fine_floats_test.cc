#include "kernels/convert/fine_floats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace kvserve {
namespace {

std::vector<std::byte> Written(std::vector<float>& values) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  RoundFineFloats(values);
  WriteFineFloats(values, writer);
  return bytes;
}

std::vector<float> Restored(const std::vector<std::byte>& bytes, std::size_t count) {
  std::vector<float> values(count, -1.0F);
  ByteReader reader(bytes);
  EXPECT_TRUE(ReadFineFloats(reader, values));
  EXPECT_EQ(reader.remaining(), 0U);
  return values;
}

TEST(FineFloats, AreWithinHalfAUnitAndLeaveWhatIsRead) {
  std::vector<float> values = {0.0F,    -0.0F,     0.25F,     -0.25F,
                               31.999F, -1.0F / 3, 65535.99F, -40000.3F};
  const std::vector<float> before = values;
  const auto bytes = Written(values);
  EXPECT_EQ(bytes.size(), 1 + 4 * 1 + 2 + 1 + 2 * 4U);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], before[i], kFineUnit / 2) << i;
  }
  EXPECT_EQ(Restored(bytes, values.size()), values);
}

TEST(FineFloats, LargeOnesAreFloats) {
  std::vector<float> values = {0.1F, -65536.0F, 1e38F};
  const std::vector<float> before = values;
  const auto bytes = Written(values);
  EXPECT_EQ(bytes.size(), 13U);
  EXPECT_EQ(values, before);
  EXPECT_EQ(Restored(bytes, 3), before);
}

TEST(FineFloats, RefuseCorruptBytes) {
  const auto refused = [](std::vector<std::byte> bytes) {
    std::vector<float> values(2);
    ByteReader reader(bytes);
    const Status status = ReadFineFloats(reader, values);
    return !status && status.error().code == ErrorCode::kCorruptData;
  };
  std::vector<float> values = {3.0F, -900.0F};
  auto bytes = Written(values);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}))
        << size;
  }
  bytes[0] = std::byte{2};
  EXPECT_TRUE(refused(bytes));
  std::vector<std::byte> large;
  ByteWriter writer(large);
  writer.Put(std::uint8_t{0});
  writer.PutVarint((std::uint64_t{1} << 24) + 1);
  writer.PutVarint(0);
  EXPECT_TRUE(refused(large));
  std::vector<std::byte> infinite;
  ByteWriter floats(infinite);
  floats.Put(std::uint8_t{1});
  floats.Put(std::numeric_limits<float>::infinity());
  floats.Put(0.0F);
  EXPECT_TRUE(refused(infinite));
}

}  // namespace
}  // namespace kvserve
