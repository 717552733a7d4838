#include "kernels/exponents/exponents.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

constexpr std::size_t kColumns[] = {1, 3, 16, 31, 64, 100, 192};
constexpr std::size_t kRows[] = {0, 1, 2, 7, 300};

std::vector<std::byte> RandomBytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::vector<std::uint8_t> RandomSymbols(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

struct Parts {
  explicit Parts(std::size_t count) : exponents(count), rest(count), low(2 * count) {}
  std::vector<std::uint8_t> exponents;
  std::vector<std::byte> rest, low;
  friend bool operator==(const Parts&, const Parts&) = default;
};

TEST(Exponents, SplitAsTheOracleOnEveryTarget) {
  for (const std::size_t columns : kColumns) {
    for (const std::size_t rows : kRows) {
      const std::size_t count = rows * columns;
      const auto elements = RandomBytes(4 * count, 1);
      Parts expected16(count), expected32(count);
      SplitExponents16Ref(std::span(elements).first(2 * count), expected16.exponents,
                          expected16.rest);
      SplitExponents32Ref(elements, expected32.exponents, expected32.rest, expected32.low);
      ForEachIsa([&] {
        Parts actual16(count), actual32(count);
        SplitExponents16(std::span(elements).first(2 * count), actual16.exponents, actual16.rest);
        SplitExponents32(elements, actual32.exponents, actual32.rest, actual32.low);
        EXPECT_TRUE(actual16 == expected16) << count;
        EXPECT_TRUE(actual32 == expected32) << count;
      });
    }
  }
}

TEST(Exponents, EveryPatternOf16BitsIsSplitAsDescribedAndJoinedAgain) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const auto elements = std::as_bytes(std::span(all));
  const std::vector<std::uint8_t> none(64, 0);
  ForEachIsa([&] {
    Parts parts(all.size());
    SplitExponents16(elements, parts.exponents, parts.rest);
    for (std::size_t h = 0; h < all.size(); ++h) {
      ASSERT_EQ(parts.exponents[h], (h >> 7) & 0xFF);
      ASSERT_EQ(static_cast<unsigned>(parts.rest[h]), ((h >> 8) & 0x80) | (h & 0x7F));
    }
    std::vector<std::byte> joined(elements.size());
    JoinExponents16(parts.exponents, none, parts.rest, joined);
    EXPECT_EQ(std::memcmp(joined.data(), elements.data(), joined.size()), 0);
  });
}

TEST(Exponents, LevelsAreUndoneOnEveryTargetAtAnyAddress) {
  for (const std::size_t columns : kColumns) {
    for (const std::size_t rows : kRows) {
      const std::size_t count = rows * columns;
      const auto elements = RandomBytes(4 * count, 2);
      const auto levels = RandomSymbols(columns, 3);
      ForEachIsa([&] {
        Parts parts(count);
        std::vector<std::byte> joined(4 * count + 1);
        const auto shifted = std::span(joined).subspan(1);
        SplitExponents32(elements, parts.exponents, parts.rest, parts.low);
        SubtractByteLevels(parts.exponents, levels);
        JoinExponents32(parts.exponents, levels, parts.rest, parts.low, shifted);
        EXPECT_TRUE(std::equal(shifted.begin(), shifted.end(), elements.begin())) << columns;
        const auto halves = std::span(elements).first(2 * count);
        SplitExponents16(halves, parts.exponents, parts.rest);
        SubtractByteLevels(parts.exponents, levels);
        JoinExponents16(parts.exponents, levels, parts.rest, shifted.first(2 * count));
        EXPECT_TRUE(std::equal(halves.begin(), halves.end(), shifted.begin())) << columns;
      });
    }
  }
}

TEST(Exponents, ColumnsAsTheOracleOnEveryTarget) {
  for (const std::size_t columns : kColumns) {
    for (const std::size_t rows : {0U, 1U, 256U, 257U, 1000U}) {
      auto bytes = RandomSymbols(rows * columns, 4);
      if (rows == 1000) std::fill(bytes.begin(), bytes.end(), 255);  // where 16 bits are full
      const auto levels = RandomSymbols(columns, 5);
      std::vector<std::uint32_t> expected(columns, 7);
      AddByteColumnsRef(bytes, expected);
      auto lowered = bytes;
      SubtractByteLevelsRef(lowered, levels);
      ForEachIsa([&] {
        std::vector<std::uint32_t> sums(columns, 7);
        AddByteColumns(bytes, sums);
        EXPECT_EQ(sums, expected) << columns << " x " << rows;
        auto actual = bytes;
        SubtractByteLevels(actual, levels);
        EXPECT_EQ(actual, lowered) << columns << " x " << rows;
      });
    }
  }
}

}  // namespace
}  // namespace kvserve
