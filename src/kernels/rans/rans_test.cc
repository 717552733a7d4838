#include "kernels/rans/rans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"

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

double Entropy(std::span<const std::uint8_t> symbols) {
  double bits = 0.0;
  for (const auto count : CountSymbols(symbols)) {
    const double p = static_cast<double>(count) / static_cast<double>(symbols.size());
    if (count > 0) bits -= p * std::log2(p);
  }
  return bits;
}

std::vector<std::byte> Encode(std::span<const RansPart> parts, unsigned lanes_log2) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  RansEncode(parts, lanes_log2, writer);
  return bytes;
}

struct Sample {
  std::vector<std::vector<std::uint8_t>> symbols;
  std::vector<RansTable> tables;
  [[nodiscard]] std::vector<RansPart> parts() const {
    std::vector<RansPart> parts;
    for (std::size_t i = 0; i < symbols.size(); ++i) parts.push_back({symbols[i], &tables[i]});
    return parts;
  }
};

Sample MakeSample(std::initializer_list<std::size_t> counts) {
  Sample sample;
  unsigned seed = 1;
  for (const auto count : counts) {
    sample.symbols.push_back(Gaussian(count, 0.4 * seed * seed, 16U * seed, seed));
    auto histogram = CountSymbols(sample.symbols.back());
    histogram[0] += 1;  // at least two symbols
    histogram[1] += 1;
    sample.tables.push_back(NormaliseCounts(histogram));
    ++seed;
  }
  return sample;
}

void CheckAgainstOracle(const Sample& sample, unsigned lanes_log2) {
  const auto parts = sample.parts();
  const auto bytes = Encode(parts, lanes_log2);
  std::vector<std::byte> expected;
  ByteWriter writer(expected);
  RansEncodeRef(parts, lanes_log2, writer);
  ASSERT_EQ(bytes, expected);
  for (const auto decode : {RansDecode, RansDecodeRef}) {
    auto decoded = sample.symbols;
    std::vector<MutableRansPart> out;
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      std::fill(decoded[i].begin(), decoded[i].end(), std::uint8_t{0});
      out.push_back({decoded[i], &sample.tables[i]});
    }
    ASSERT_TRUE(decode(bytes, lanes_log2, out));
    ASSERT_EQ(decoded, sample.symbols);
  }
}

TEST(Rans, MatchesTheOracleAndRoundTripsForEveryLaneCount) {
  const auto sample = MakeSample({1000, 0, 33, 1, 5000, 64});
  ForEachIsa([&] {
    for (unsigned lanes_log2 = 0; lanes_log2 <= kMaxRansLanesLog2; ++lanes_log2) {
      CheckAgainstOracle(sample, lanes_log2);
    }
  });
}

// Every frequency, the reciprocals of which have to be exact for all states.
TEST(Rans, MatchesTheOracleForEveryFrequency) {
  std::mt19937 random(8);
  for (std::uint32_t frequency = 1; frequency < kRansTotal; frequency += 1 + frequency / 64) {
    Sample sample;
    sample.tables.emplace_back();
    sample.tables[0].frequency[3] = static_cast<std::uint16_t>(frequency);
    sample.tables[0].frequency[250] = static_cast<std::uint16_t>(kRansTotal - frequency);
    auto& symbols = sample.symbols.emplace_back(4096);
    for (auto& symbol : symbols) symbol = random() % 2 == 0 ? 3 : 250;
    ForEachIsa([&] { CheckAgainstOracle(sample, kMaxRansLanesLog2); });
  }
}

TEST(Rans, CostsWithinOnePercentOfTheEntropy) {
  for (const double sigma : {0.25, 0.5, 1.0, 2.0, 10.0, 60.0}) {
    const auto symbols = Gaussian(50000, sigma, 256, 5);
    const auto table = NormaliseCounts(CountSymbols(symbols));
    const RansPart part{symbols, &table};
    auto bytes = Encode(std::span(&part, 1), 5);
    ByteWriter writer(bytes);
    WriteRansTable(table, writer);
    const double ideal = Entropy(symbols) * static_cast<double>(symbols.size()) / 8.0;
    EXPECT_LE(static_cast<double>(bytes.size()), 1.01 * ideal + 128 + 256) << sigma;
    EXPECT_LE(static_cast<double>(CodeLength(CountSymbols(symbols), table)) / 65536.0 / 8.0,
              1.005 * ideal)
        << sigma;
  }
}

TEST(Rans, DamageIsRefusedOrDecodesToSymbolsOfTheTable) {
  const auto sample = MakeSample({3000, 500});
  std::mt19937 random(11);
  for (int trial = 0; trial < 3000; ++trial) {
    const unsigned lanes_log2 = trial % 2 == 0 ? 5 : 3;
    const auto bytes = Encode(sample.parts(), lanes_log2);
    auto damaged = bytes;
    if (trial % 3 == 0) {
      damaged.resize(random() % damaged.size());
    } else if (trial % 3 == 1) {
      damaged.push_back(static_cast<std::byte>(random()));
    } else {
      damaged[random() % damaged.size()] ^= static_cast<std::byte>(1 + random() % 255);
    }
    auto decoded = sample.symbols;
    const std::vector<MutableRansPart> out = {{decoded[0], &sample.tables[0]},
                                              {decoded[1], &sample.tables[1]}};
    const auto status = RansDecode(damaged, lanes_log2, out);
    if (trial % 3 != 2) {
      ASSERT_FALSE(status);
    } else if (status) {
      for (std::size_t p = 0; p < 2; ++p) {
        for (const auto s : decoded[p]) ASSERT_GT(sample.tables[p].frequency[s], 0);
      }
    }
  }
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
      total += table.frequency[s];
      ASSERT_EQ(table.frequency[s] > 0, counts[s] > 0);
    }
    ASSERT_EQ(total, kRansTotal);
    std::vector<std::byte> bytes;
    ByteWriter writer(bytes);
    WriteRansTable(table, writer);
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
    for (const auto frequency : table->frequency) {
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
