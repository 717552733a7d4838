#include "kernels/rans/rans_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/histogram/histogram.h"

namespace kvserve {
namespace {

std::vector<std::uint8_t> Gaussian(std::size_t count, double sigma, std::uint32_t alphabet,
                                   unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0.5 * (alphabet - 1), sigma);
  std::vector<std::uint8_t> symbols(count);
  for (auto& symbol : symbols) {
    symbol = static_cast<std::uint8_t>(std::clamp(std::round(normal(random)), 0.0, alphabet - 1.0));
  }
  return symbols;
}

TEST(RansTable, RandomCountsNormaliseAndRoundTrip) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    SymbolCounts counts{};
    const std::uint32_t alphabet = 2 + random() % 255;
    for (std::uint32_t s = 0; s < alphabet; ++s) {
      counts[s] = random() % 3 == 0 ? 0 : std::uint64_t{1} << (random() % 40);
    }
    counts[random() % alphabet] += 1;
    counts[0] += 1;
    counts[alphabet - 1] += 1;
    const auto table = NormaliseCounts(counts);
    std::uint32_t total = 0;
    for (std::size_t s = 0; s < 256; ++s) {
      total += table[s];
      ASSERT_EQ(table[s] > 0, counts[s] > 0);
    }
    ASSERT_EQ(total, kRansTotal);
    std::vector<std::byte> bytes;
    ByteWriter writer(bytes);
    WriteRansTable(table, writer);
    ASSERT_EQ(bytes.size(), RansTableBytes(table));
    ASSERT_TRUE(IsRansTable(table, alphabet));
    ASSERT_FALSE(IsRansTable(table, alphabet - 1));
    ByteReader reader(bytes);
    const auto read = ReadRansTable(alphabet, reader);
    ASSERT_TRUE(read);
    ASSERT_EQ(*read, table);
    ASSERT_EQ(reader.remaining(), 0U);
    ByteReader short_reader{std::span<const std::byte>(bytes).first(bytes.size() - 1)};
    ASSERT_FALSE(ReadRansTable(alphabet, short_reader));
    ByteReader again(bytes);
    ASSERT_FALSE(ReadRansTable(alphabet - 1, again));
  }
}

TEST(RansTable, GarbageIsRefusedOrSumsExactly) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<std::uint8_t> bytes(1 + random() % 60);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    bytes[0] %= 20;
    ByteReader reader(std::as_bytes(std::span(bytes)));
    const auto table = ReadRansTable(256, reader);
    if (!table) continue;
    std::uint32_t total = 0;
    for (const auto frequency : *table) {
      ASSERT_LT(frequency, kRansTotal);
      total += frequency;
    }
    ASSERT_EQ(total, kRansTotal);
  }
}

TEST(RansTable, BellOfSixteenLevelsTakesFewBytes) {
  const auto table = NormaliseCounts(CountSymbols(Gaussian(50000, 2.0, 16, 1)));
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  WriteRansTable(table, writer);
  EXPECT_LE(bytes.size(), 24U);
}

}  // namespace
}  // namespace kvserve
