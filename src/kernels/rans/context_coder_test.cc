#include "kernels/rans/context_coder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/isa/isa_testing.h"
#include "kernels/testing/laplace_tables.h"

namespace kvserve {
namespace {

using Frequencies = testing::CodeFrequencies;

struct Part {
  std::vector<std::uint8_t> symbols;
  std::vector<std::uint8_t> indices;
  std::uint8_t offset = 0;
};

// Symbols as their tables have them, where the tables are Laplace's.
Part Laplace(std::size_t count, std::uint32_t first_table, std::uint32_t tables, unsigned seed,
             std::uint8_t offset = 0) {
  std::mt19937 random(seed);
  Part part{std::vector<std::uint8_t>(count), std::vector<std::uint8_t>(count), offset};
  for (std::size_t i = 0; i < count; ++i) {
    const auto table = static_cast<std::uint8_t>(first_table + random() % tables);
    part.indices[i] = table;
    part.symbols[i] = static_cast<std::uint8_t>(testing::LaplaceSymbol(table, random) - offset);
  }
  return part;
}

struct Stream {
  std::vector<std::byte> bytes;
  std::vector<std::byte> escaped;
};

std::vector<ContextPart> View(const std::vector<Part>& parts) {
  std::vector<ContextPart> view;
  for (const Part& part : parts) view.push_back({part.symbols, part.indices, part.offset});
  return view;
}

Stream Encode(const ContextTables& tables, const std::vector<Part>& parts, unsigned lanes_log2) {
  ContextLength length;
  std::uint64_t symbols = 0;
  const auto view = View(parts);
  for (const ContextPart& part : view) {
    const ContextLength one = MeasureContexts(tables, part);
    const ContextLength expected = MeasureContextsRef(tables, part);
    EXPECT_EQ(one.code_length, expected.code_length);
    EXPECT_EQ(one.escapes, expected.escapes);
    length.code_length += one.code_length;
    length.escapes += one.escapes;
    symbols += part.symbols.size();
  }
  // With room in front, to see that no less is needed.
  constexpr std::uint16_t kUntouched = 0xBEEF;
  const std::size_t needed = ContextScratchWords(length, symbols, lanes_log2);
  std::vector<std::uint16_t> words(64 + needed, kUntouched);
  std::vector<std::uint8_t> escaped(16 + length.escapes, 0xEE);
  ContextEncoder encoder(tables, lanes_log2, std::span(words).subspan(64),
                         std::span(escaped).subspan(16));
  for (std::size_t p = view.size(); p-- > 0;) encoder.Encode(view[p]);
  const auto bytes = encoder.Finish();
  EXPECT_EQ(std::count(words.begin(), words.begin() + 64, kUntouched), 64);
  EXPECT_EQ(std::count(escaped.begin(), escaped.begin() + 16, 0xEE), 16);
  const auto list = std::as_bytes(std::span(escaped).subspan(16));
  return {{bytes.begin(), bytes.end()}, {list.begin(), list.end()}};
}

Status Decode(const ContextTables& tables, const Stream& stream, unsigned lanes_log2,
              std::vector<Part>& parts) {
  ContextDecoder decoder(tables, lanes_log2, stream.bytes, stream.escaped);
  for (Part& part : parts) {
    if (auto status = decoder.Decode({part.symbols, part.indices, part.offset}); !status) {
      return status;
    }
  }
  return decoder.Finish();
}

class ContextCoder : public ::testing::Test {
 protected:
  void Fill(const Frequencies& frequencies) {
    frequencies_ = frequencies;
    ASSERT_TRUE(FillContextTables(frequencies_, *tables_));
  }
  void CheckAgainstOracle(const std::vector<Part>& parts, unsigned lanes_log2) {
    const Stream stream = Encode(*tables_, parts, lanes_log2);
    Stream expected;
    ByteWriter bytes(expected.bytes);
    ByteWriter escaped(expected.escaped);
    EncodeContextsRef(frequencies_, View(parts), lanes_log2, bytes, escaped);
    ASSERT_EQ(stream.bytes, expected.bytes) << lanes_log2;
    ASSERT_EQ(stream.escaped, expected.escaped) << lanes_log2;
    auto decoded = parts;
    for (Part& part : decoded) std::fill(part.symbols.begin(), part.symbols.end(), 0xEE);
    const auto status = Decode(*tables_, stream, lanes_log2, decoded);
    ASSERT_TRUE(status) << lanes_log2 << ": " << status.error().message;
    ExpectSymbols(decoded, parts);
    for (Part& part : decoded) std::fill(part.symbols.begin(), part.symbols.end(), 0xEE);
    std::vector<MutableContextPart> view;
    for (Part& part : decoded) view.push_back({part.symbols, part.indices, part.offset});
    ASSERT_TRUE(DecodeContextsRef(frequencies_, stream.bytes, stream.escaped, lanes_log2, view));
    ExpectSymbols(decoded, parts);
  }
  static void ExpectSymbols(const std::vector<Part>& parts, const std::vector<Part>& expected) {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      ASSERT_EQ(parts[p].symbols, expected[p].symbols) << "part " << p;
    }
  }
  void CheckEveryWay(const std::vector<Part>& parts) {
    ForEachIsa([&] {
      for (unsigned log2 = 0; log2 <= kMaxRansLanesLog2; ++log2) CheckAgainstOracle(parts, log2);
    });
  }

  Frequencies frequencies_ = testing::LaplaceTables();
  std::unique_ptr<ContextTables> tables_ = [this] {
    auto tables = std::make_unique<ContextTables>();
    EXPECT_TRUE(FillContextTables(frequencies_, *tables));
    return tables;
  }();
};

TEST_F(ContextCoder, MatchesTheOracleForEveryLaneCount) {
  CheckEveryWay({Laplace(1000, 0, 60, 1), Part{}, Laplace(133, 10, 30, 2, 7), Laplace(1, 59, 1, 3),
                 Laplace(127, 24, 1, 4, 255), Laplace(129, 0, 2, 5), Laplace(640, 50, 10, 6)});
}

TEST_F(ContextCoder, MatchesTheOracleForShortParts) {
  for (const std::size_t count : {0, 1, 2, 7, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 255}) {
    CheckEveryWay({Laplace(count, 0, 60, static_cast<unsigned>(count))});
  }
  CheckEveryWay({});
}

// Bytes that hardly any table has, 255 among them.
TEST_F(ContextCoder, EscapesKeepEveryByte) {
  Part part = Laplace(4096, 0, 60, 1);
  for (std::size_t i = 0; i < part.symbols.size(); ++i) {
    part.symbols[i] = static_cast<std::uint8_t>(i * 7);
  }
  CheckEveryWay({part, Laplace(300, 0, 30, 2)});
  part.offset = 3;
  CheckEveryWay({part});
}

// Tables with holes, with one symbol beside the escape, and with nearly nothing but escapes.
TEST_F(ContextCoder, OddTablesAreTables) {
  Frequencies odd{};
  std::mt19937 random(3);
  for (std::size_t t = 0; t < odd.size(); ++t) {
    std::uint32_t left = kRansTotal;
    const auto put = [&](std::size_t symbol, std::uint32_t frequency) {
      odd[t][symbol] = static_cast<std::uint16_t>(odd[t][symbol] + frequency);
      left -= frequency;
    };
    put(kContextEscape, t % 3 == 0 ? kRansTotal - 1 : 1 + static_cast<std::uint32_t>(t));
    for (std::size_t i = 0; t % 3 == 1 && i < 40 && left > 1; ++i) put(random() % 255, left / 2);
    put(random() % 255, left);
  }
  Fill(odd);
  std::vector<Part> parts(2);
  for (Part& part : parts) {
    for (std::size_t i = 0; i < 3000; ++i) {
      part.indices.push_back(static_cast<std::uint8_t>(random() % kContextTables));
      const auto& table = odd[part.indices.back()];
      std::uint32_t slot = random() % kRansTotal;
      std::uint8_t symbol = 0;
      for (; slot >= table[symbol]; ++symbol) slot -= table[symbol];
      part.symbols.push_back(symbol);
    }
  }
  CheckEveryWay(parts);
}

// Every frequency, the quotients by which have to be exact for all states.
TEST_F(ContextCoder, MatchesTheOracleForEveryFrequency) {
  for (std::uint32_t first = 1; first < kRansTotal; first += kContextTables) {
    Frequencies tables{};
    for (std::uint32_t t = 0; t < kContextTables; ++t) {
      const std::uint32_t frequency = std::min(first + t, kRansTotal - 1);
      tables[t][100] = static_cast<std::uint16_t>(frequency);
      tables[t][255] = 1;
      tables[t][200] = static_cast<std::uint16_t>(kRansTotal - 1 - frequency);
    }
    Fill(tables);
    Part part;
    std::mt19937 random(first);
    for (std::size_t i = 0; i < 6000; ++i) {
      part.indices.push_back(static_cast<std::uint8_t>(i % kContextTables));
      part.symbols.push_back(random() % 2 == 0 ? 100 : 200);
    }
    ForEachIsa([&] { CheckAgainstOracle({part}, kMaxRansLanesLog2); });
  }
}

// Long streams, whose states go through many words, at the rates of real planes.
TEST_F(ContextCoder, CostsWithinHalfAPercentOfTheCodeLength) {
  for (const std::uint32_t table : {0U, 6U, 12U, 18U, 24U, 36U, 48U, 54U}) {
    const Part part = Laplace(400000, table, 6, table);
    double bits = 0;
    for (std::size_t i = 0; i < part.symbols.size(); ++i) {
      const auto& frequencies = frequencies_[part.indices[i]];
      const bool escaped = frequencies[part.symbols[i]] == 0;
      bits += 12 - std::log2(frequencies[escaped ? 255 : part.symbols[i]]) + (escaped ? 8 : 0);
    }
    const Stream stream = Encode(*tables_, {part}, 4);
    const auto bytes = static_cast<double>(stream.bytes.size() + stream.escaped.size());
    EXPECT_LE(bytes, 1.005 * bits / 8 + 64) << table;
    const auto length = MeasureContexts(*tables_, {part.symbols, part.indices, 0});
    EXPECT_NEAR(static_cast<double>(length.code_length) / 1024, bits, 0.002 * bits) << table;
  }
}

TEST_F(ContextCoder, DamageIsRefusedOrDecodesToSymbols) {
  std::vector<Part> parts = {Laplace(3000, 0, 60, 1), Laplace(700, 0, 20, 2)};
  for (std::size_t i = 0; i < 700; i += 20) parts[1].symbols[i] = 1;  // escapes
  std::mt19937 random(11);
  ForEachIsa([&] {
    for (int trial = 0; trial < 1500; ++trial) {
      const unsigned lanes_log2 = trial % 2 == 0 ? 7 : 4;
      Stream damaged = Encode(*tables_, parts, lanes_log2);
      auto& bytes = trial % 5 == 4 ? damaged.escaped : damaged.bytes;
      if (trial % 3 == 0) {
        bytes.resize(random() % bytes.size());
      } else if (trial % 3 == 1) {
        bytes.resize(bytes.size() + 1 + random() % 700, static_cast<std::byte>(random()));
      } else {
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 + random() % 255);
      }
      auto decoded = parts;
      const auto status = Decode(*tables_, damaged, lanes_log2, decoded);
      if (trial % 3 != 2) {
        ASSERT_FALSE(status) << trial;
      }
      if (!status) {
        ASSERT_EQ(status.error().code, ErrorCode::kCorruptData);
      }
    }
  });
}

TEST_F(ContextCoder, TablesMustSumAndHaveAnEscape) {
  const auto refused = [&](const auto& change) {
    Frequencies tables = testing::LaplaceTables();
    change(tables[37]);
    const auto status = FillContextTables(tables, *tables_);
    return !status && status.error().code == ErrorCode::kCorruptData;
  };
  EXPECT_TRUE(refused([](RansTable& table) { ++table[127]; }));
  EXPECT_TRUE(refused([](RansTable& table) { --table[127]; }));
  EXPECT_TRUE(refused([](RansTable& table) {
    table[127] = static_cast<std::uint16_t>(table[127] + table[255]);
    table[255] = 0;
  }));
  EXPECT_TRUE(refused([](RansTable& table) {
    table.fill(0);
    table[255] = kRansTotal;
  }));
  EXPECT_TRUE(refused([](RansTable& table) { table.fill(0xFFFF); }));
}

}  // namespace
}  // namespace kvserve
