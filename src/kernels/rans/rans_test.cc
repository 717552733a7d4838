#include "kernels/rans/rans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/histogram/histogram.h"
#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

constexpr RansLayout kLayouts[] = {RansLayout::kIntervals, RansLayout::kAlias};

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

struct Sample {
  std::vector<std::vector<std::uint8_t>> symbols;
  std::vector<RansTable> tables;

  // Symbols must not all be equal.
  void Add(std::vector<std::uint8_t> part) {
    tables.push_back(NormaliseCounts(CountSymbols(part)));
    symbols.push_back(std::move(part));
  }
  void Add(std::vector<std::uint8_t> part, const RansTable& table) {
    tables.push_back(table);
    symbols.push_back(std::move(part));
  }
  [[nodiscard]] std::vector<RansPart> parts() const {
    std::vector<RansPart> parts;
    for (std::size_t i = 0; i < symbols.size(); ++i) parts.push_back({symbols[i], &tables[i]});
    return parts;
  }
};

std::vector<std::byte> Encode(const Sample& sample, unsigned lanes_log2, RansLayout layout) {
  const auto parts = sample.parts();
  std::uint64_t length = 0;
  std::uint64_t symbols = 0;
  for (const auto& part : parts) {
    length += CodeLength(CountSymbols(part.symbols), *part.table);
    symbols += part.symbols.size();
  }
  // With room in front, to see that no less is needed.
  constexpr std::uint16_t kUntouched = 0xBEEF;
  const std::size_t needed = RansScratchWords(length, symbols, lanes_log2);
  std::vector<std::uint16_t> scratch(64 + needed, kUntouched);
  const auto bytes = RansEncode(parts, lanes_log2, layout, std::span(scratch).subspan(64));
  EXPECT_EQ(std::count(scratch.begin(), scratch.begin() + 64, kUntouched), 64);
  EXPECT_LE(bytes.size(), 2 * needed);
  return {bytes.begin(), bytes.end()};
}

void CheckAgainstOracle(const Sample& sample, unsigned lanes_log2, RansLayout layout) {
  const auto bytes = Encode(sample, lanes_log2, layout);
  std::vector<std::byte> expected;
  ByteWriter writer(expected);
  RansEncodeRef(sample.parts(), lanes_log2, layout, writer);
  ASSERT_EQ(bytes, expected) << lanes_log2;
  for (const auto decode : {RansDecode, RansDecodeRef}) {
    auto decoded = sample.symbols;
    std::vector<MutableRansPart> out;
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      std::fill(decoded[i].begin(), decoded[i].end(), std::uint8_t{0});
      out.push_back({decoded[i], &sample.tables[i]});
    }
    const auto status = decode(bytes, lanes_log2, layout, out);
    ASSERT_TRUE(status) << lanes_log2 << ": " << status.error().message;
    ASSERT_EQ(decoded, sample.symbols) << lanes_log2;
  }
}

void CheckEveryWay(const Sample& sample, unsigned first_lanes_log2 = 0) {
  ForEachIsa([&] {
    for (unsigned log2 = first_lanes_log2; log2 <= kMaxRansLanesLog2; ++log2) {
      for (const RansLayout layout : kLayouts) CheckAgainstOracle(sample, log2, layout);
    }
  });
}

// Alphabets of all kinds of table in one stream, with lengths around the numbers of lanes.
TEST(Rans, MatchesTheOracleForEveryLaneCount) {
  Sample sample;
  sample.Add(Gaussian(1000, 1.2, 6, 1));
  sample.Add({}, sample.tables[0]);
  sample.Add(Gaussian(133, 2.0, 16, 2));
  sample.Add({1}, sample.tables[0]);
  sample.Add(Gaussian(500, 3.0, 30, 3));
  sample.Add(Gaussian(700, 40.0, 256, 4));
  sample.Add(Gaussian(127, 0.7, 16, 5));
  sample.Add(Gaussian(129, 5.0, 33, 6));
  CheckEveryWay(sample);
}

TEST(Rans, MatchesTheOracleForShortParts) {
  for (const std::size_t count : {2, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 255}) {
    Sample sample;
    auto symbols = Gaussian(count, 2.0, 12, static_cast<unsigned>(count));
    symbols[0] = 0;
    symbols[1] = 11;
    sample.Add(symbols);
    CheckEveryWay(sample);
  }
}

// Alphabets with gaps: symbols that meet modulo 16 or 32, or wrap around.
TEST(Rans, MatchesTheOracleForScatteredSymbols) {
  const std::vector<std::vector<std::uint8_t>> alphabets = {
      {0, 16},         {250, 255, 0, 5, 8},
      {3, 35, 67, 99}, {1, 18, 17, 2, 200, 216, 31, 15, 77, 12},
      {0, 255},        {7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 200}};
  std::mt19937 random(5);
  for (const auto& alphabet : alphabets) {
    std::vector<std::uint8_t> symbols(4200);
    for (auto& symbol : symbols) {
      symbol = alphabet[std::min<std::size_t>(random() % alphabet.size(), random() % 20)];
    }
    Sample sample;
    sample.Add(symbols);
    CheckEveryWay(sample, 3);
  }
}

// Every number of occurring symbols around the sizes of alias tables, skewed and flat.
TEST(Rans, MatchesTheOracleForEveryNumberOfSymbols) {
  std::mt19937 random(9);
  for (std::uint32_t occurring = 2; occurring <= 40; ++occurring) {
    for (const std::uint32_t skew : {1U, 2U, 6U}) {
      std::vector<std::uint8_t> symbols(1500);
      for (auto& symbol : symbols) {
        std::uint32_t s = occurring - 1;
        for (std::uint32_t i = 0; i < skew; ++i) {
          s = std::min(s, static_cast<std::uint32_t>(random()) % occurring);
        }
        symbol = static_cast<std::uint8_t>(s);
      }
      for (std::uint32_t s = 0; s < occurring; ++s) symbols[s] = static_cast<std::uint8_t>(s);
      Sample sample;
      sample.Add(symbols);
      ForEachIsa([&] { CheckAgainstOracle(sample, kMaxRansLanesLog2, RansLayout::kAlias); });
    }
  }
}

// Every frequency, the quotients by which have to be exact for all states.
TEST(Rans, MatchesTheOracleForEveryFrequency) {
  std::mt19937 random(8);
  for (std::uint32_t frequency = 1; frequency < kRansTotal; frequency += 1 + frequency / 64) {
    RansTable table{};
    table[3] = static_cast<std::uint16_t>(frequency);
    table[250] = static_cast<std::uint16_t>(kRansTotal - frequency);
    std::vector<std::uint8_t> symbols(4096);
    for (auto& symbol : symbols) symbol = random() % 2 == 0 ? 3 : 250;
    Sample sample;
    sample.Add(symbols, table);
    ForEachIsa([&] {
      for (const RansLayout layout : kLayouts) CheckAgainstOracle(sample, 7, layout);
    });
  }
}

// Long streams, whose states go through many words.
TEST(Rans, EveryInstructionSetGivesTheSameBytes) {
  Sample sample;
  sample.Add(Gaussian(300000, 1.2, 8, 1));
  sample.Add(Gaussian(200001, 2.1, 16, 2));
  sample.Add(Gaussian(100017, 3.5, 30, 3));
  sample.Add(Gaussian(100000, 30.0, 256, 4));
  std::vector<std::byte> first;
  ForEachIsa([&] {
    const auto bytes = Encode(sample, 7, RansLayout::kAlias);
    if (first.empty()) first = bytes;
    ASSERT_EQ(bytes, first);
    auto decoded = sample.symbols;
    std::vector<MutableRansPart> out;
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      std::fill(decoded[i].begin(), decoded[i].end(), std::uint8_t{0});
      out.push_back({decoded[i], &sample.tables[i]});
    }
    ASSERT_TRUE(RansDecode(bytes, 7, RansLayout::kAlias, out));
    ASSERT_EQ(decoded, sample.symbols);
  });
}

TEST(Rans, CostsWithinOnePercentOfTheEntropy) {
  for (const double sigma : {0.25, 0.5, 1.0, 2.0, 10.0, 60.0}) {
    Sample sample;
    sample.Add(Gaussian(50000, sigma, 256, 5));
    auto bytes = Encode(sample, 5, RansLayout::kAlias);
    ByteWriter writer(bytes);
    WriteRansTable(sample.tables[0], writer);
    const double ideal = Entropy(sample.symbols[0]) * 50000.0 / 8.0;
    EXPECT_LE(static_cast<double>(bytes.size()), 1.01 * ideal + 128 + 256) << sigma;
    const auto length = CodeLength(CountSymbols(sample.symbols[0]), sample.tables[0]);
    EXPECT_LE(static_cast<double>(length) / 65536.0 / 8.0, 1.005 * ideal) << sigma;
  }
}

void CheckDamage(const Sample& sample, std::mt19937& random) {
  for (int trial = 0; trial < 3000; ++trial) {
    const unsigned lanes_log2 = trial % 2 == 0 ? 7 : 4;
    const RansLayout layout = kLayouts[trial / 2 % 2];
    auto damaged = Encode(sample, lanes_log2, layout);
    if (trial % 3 == 0) {
      damaged.resize(random() % damaged.size());
    } else if (trial % 3 == 1) {
      damaged.resize(damaged.size() + 1 + random() % 700, static_cast<std::byte>(random()));
    } else {
      damaged[random() % damaged.size()] ^= static_cast<std::byte>(1 + random() % 255);
    }
    auto decoded = sample.symbols;
    std::vector<MutableRansPart> out;
    for (std::size_t p = 0; p < decoded.size(); ++p) {
      out.push_back({decoded[p], &sample.tables[p]});
    }
    const auto status = RansDecode(damaged, lanes_log2, layout, out);
    if (trial % 3 != 2) {
      ASSERT_FALSE(status);
    }
    if (!status) {
      ASSERT_EQ(status.error().code, ErrorCode::kCorruptData);
      continue;
    }
    for (std::size_t p = 0; p < decoded.size(); ++p) {
      for (const auto s : decoded[p]) ASSERT_GT(sample.tables[p][s], 0);
    }
  }
}

TEST(Rans, DamageIsRefusedOrDecodesToSymbolsOfTheTable) {
  Sample sample;
  sample.Add(Gaussian(3000, 2.0, 16, 1));
  sample.Add(Gaussian(500, 3.0, 30, 2));
  sample.Add(Gaussian(500, 20.0, 200, 3));
  std::mt19937 random(11);
  ForEachIsa([&] { CheckDamage(sample, random); });
}

}  // namespace
}  // namespace kvserve
