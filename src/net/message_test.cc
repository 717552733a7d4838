#include "net/message.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/hash.h"
#include "net/testing/allocation_watch.h"

namespace kvserve {
namespace {

const MessageHeader kSample{MessageType::kChunk, 0x0123456789ABCDEFULL, 42, 17, 1000, 99};

TEST(MessageHeader, RoundTrips) {
  const auto read = UnpackHeader(PackHeader(kSample), 1000).value();
  EXPECT_EQ(read.type, kSample.type);
  EXPECT_EQ(read.transfer_id, kSample.transfer_id);
  EXPECT_EQ(read.epoch, kSample.epoch);
  EXPECT_EQ(read.index, kSample.index);
  EXPECT_EQ(read.payload_bytes, kSample.payload_bytes);
  EXPECT_EQ(read.payload_checksum, kSample.payload_checksum);
}

TEST(MessageHeader, LayoutIsPinned) {
  const auto bytes = PackHeader(kSample);
  EXPECT_EQ(std::to_integer<char>(bytes[0]), 'K');
  EXPECT_EQ(std::to_integer<char>(bytes[3]), '1');
  EXPECT_EQ(std::to_integer<int>(bytes[4]), 18);
  EXPECT_EQ(std::to_integer<int>(bytes[8]), 17);
  EXPECT_EQ(std::to_integer<int>(bytes[16]), 0xEF);
  EXPECT_EQ(std::to_integer<int>(bytes[24]), 42);
  EXPECT_EQ(std::to_integer<int>(bytes[32]), 1000 & 0xFF);
  EXPECT_EQ(std::to_integer<int>(bytes[40]), 99);
}

TEST(MessageHeader, EveryBitFlipIsCorrupt) {
  for (std::size_t bit = 0; bit < 8 * kMessageHeaderBytes; ++bit) {
    auto bytes = PackHeader(kSample);
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const auto read = UnpackHeader(bytes, UINT64_MAX);
    ASSERT_FALSE(read.has_value()) << bit;
    EXPECT_EQ(read.error().code, ErrorCode::kCorruptData) << bit;
  }
}

// Rebuilt checksums, as an attacker would: the fields themselves are checked too.
TEST(MessageHeader, FieldsAreCheckedBeyondTheChecksum) {
  const auto sealed = [](std::size_t at, std::uint8_t value) {
    auto bytes = PackHeader(kSample);
    bytes[at] = static_cast<std::byte>(value);
    const std::uint64_t checksum = Hash64(std::span(bytes).first(kMessageHeaderBytes - 8));
    std::memcpy(bytes.data() + kMessageHeaderBytes - 8, &checksum, 8);
    return UnpackHeader(bytes, 1000);
  };
  EXPECT_TRUE(sealed(4, 19).has_value());
  EXPECT_NE(sealed(4, 99).error().message.find("type 99"), std::string::npos);
  EXPECT_NE(sealed(5, 1).error().message.find("reserved"), std::string::npos);
  EXPECT_NE(sealed(6, 1).error().message.find("reserved"), std::string::npos);
  EXPECT_NE(sealed(12, 1).error().message.find("reserved"), std::string::npos);
  EXPECT_NE(sealed(39, 0x80).error().message.find("above the limit"), std::string::npos);
}

TEST(MessageHeader, RefusalAllocatesOnlyItsText) {
  auto header = kSample;
  header.payload_bytes = std::uint64_t{1} << 62;
  const auto bytes = PackHeader(header);
  testing::ResetLargestAllocation();
  EXPECT_FALSE(UnpackHeader(bytes, 1000).has_value());
  EXPECT_LT(testing::LargestAllocation(), 1024U);
}

TEST(MessageType, GapsAreUnknown) {
  int known = 0;
  for (int value = 0; value < 256; ++value)
    known += IsKnown(static_cast<MessageType>(value)) ? 1 : 0;
  EXPECT_EQ(known, 14);
}

}  // namespace
}  // namespace kvserve
