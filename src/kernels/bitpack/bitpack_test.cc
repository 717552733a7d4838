#include "kernels/bitpack/bitpack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace kvserve {
namespace {

std::vector<std::uint8_t> Random(std::size_t count, std::uint32_t alphabet) {
  std::mt19937 random(alphabet);
  std::vector<std::uint8_t> symbols(count);
  for (auto& symbol : symbols) symbol = static_cast<std::uint8_t>(random() % alphabet);
  return symbols;
}

TEST(BitPack, EveryAlphabetRoundTripsAsTheOracle) {
  for (std::uint32_t alphabet = 1; alphabet <= 256; ++alphabet) {
    for (const std::size_t count : {0U, 1U, 7U, 1000U, 1003U}) {
      const auto symbols = Random(count, alphabet);
      std::vector<std::byte> packed(PackedBytes(count, alphabet)), expected(packed.size());
      PackSymbols(symbols, alphabet, packed);
      PackSymbolsRef(symbols, alphabet, expected);
      ASSERT_EQ(packed, expected) << alphabet;
      std::vector<std::uint8_t> back(count, 99);
      ASSERT_TRUE(UnpackSymbols(packed, alphabet, back));
      ASSERT_EQ(back, symbols) << alphabet;
      std::fill(back.begin(), back.end(), std::uint8_t{99});
      ASSERT_TRUE(UnpackSymbolsRef(packed, alphabet, back));
      ASSERT_EQ(back, symbols) << alphabet;
    }
  }
}

TEST(BitPack, LargestDigitsFit) {
  for (std::uint32_t alphabet = 2; alphabet <= 256; ++alphabet) {
    const std::vector<std::uint8_t> symbols(777, static_cast<std::uint8_t>(alphabet - 1));
    std::vector<std::byte> packed(PackedBytes(symbols.size(), alphabet));
    PackSymbols(symbols, alphabet, packed);
    std::vector<std::uint8_t> back(symbols.size());
    ASSERT_TRUE(UnpackSymbols(packed, alphabet, back));
    ASSERT_EQ(back, symbols) << alphabet;
  }
}

TEST(BitPack, SizesAreNearTheIdeal) {
  EXPECT_EQ(PackedBytes(10, 3), 2U);
  EXPECT_EQ(PackedBytes(16, 2), 2U);
  EXPECT_EQ(PackedBytes(8, 8), 3U);
  EXPECT_EQ(PackedBytes(100, 256), 100U);
  for (std::uint32_t alphabet = 2; alphabet <= 256; ++alphabet) {
    const double ideal = 10000.0 * std::log2(alphabet) / 8.0;
    EXPECT_GE(static_cast<double>(PackedBytes(10000, alphabet)), ideal - 1e-6);
    EXPECT_LE(static_cast<double>(PackedBytes(10000, alphabet)),
              (alphabet <= 32 ? 1.06 : 1.15) * ideal)
        << alphabet;
  }
}

TEST(BitPack, NumbersWithTooManyDigitsAreRefused) {
  std::vector<std::uint8_t> symbols(5);
  const std::byte above[] = {std::byte{243}};  // 3^5
  EXPECT_FALSE(UnpackSymbols(above, 3, symbols));
  const std::byte largest[] = {std::byte{242}};
  EXPECT_TRUE(UnpackSymbols(largest, 3, symbols));
  symbols.resize(3);  // a short block: padding bits must be zero
  const std::byte padded[] = {std::byte{0x20}, std::byte{0x02}};
  EXPECT_FALSE(UnpackSymbols(padded, 8, symbols));
}

// Of the smallest and the largest number beyond the digits, in any place of a row of blocks.
TEST(BitPack, AnyBlockOutOfRangeIsRefused) {
  for (std::uint32_t alphabet = 3; alphabet < 256; ++alphabet) {
    const PackBlock block = PackBlockFor(alphabet);
    std::uint64_t numbers = 1;
    for (std::uint32_t i = 0; i < block.symbols; ++i) numbers *= alphabet;
    const std::uint64_t end = std::uint64_t{1} << (8 * block.bytes);
    if (numbers == end) continue;  // a power of two that fills its blocks
    for (const std::uint64_t number : {numbers, end - 1}) {
      for (std::size_t bad = 0; bad < 5; ++bad) {
        std::vector<std::byte> packed(std::size_t{5} * block.bytes);
        std::memcpy(&packed[bad * block.bytes], &number, block.bytes);
        std::vector<std::uint8_t> symbols(std::size_t{5} * block.symbols);
        EXPECT_FALSE(UnpackSymbols(packed, alphabet, symbols)) << alphabet << ' ' << bad;
        EXPECT_FALSE(UnpackSymbolsRef(packed, alphabet, symbols)) << alphabet << ' ' << bad;
      }
    }
  }
}

}  // namespace
}  // namespace kvserve
