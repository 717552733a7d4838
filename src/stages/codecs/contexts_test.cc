#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/byte_io.h"
#include "kernels/isa/isa_testing.h"
#include "kernels/rans/token_energy.h"
#include "kernels/testing/laplace_tables.h"
#include "pipeline/code_contexts.h"
#include "pipeline/settings.h"
#include "pipeline/token_classes.h"

namespace kvserve {

const StageEntry& ContextsStage();

namespace {

constexpr std::uint32_t kAlphabet = 255;

struct Choices {
  double point = 0;
  double energy = 1;
  double shift = 1;
};

std::unique_ptr<Codec> MakeContexts(Choices choices = {}) {
  const std::vector<ParameterValue> values = {
      {1, choices.point}, {2, choices.energy}, {3, choices.shift}};
  return ContextsStage()
      .make_codec(CheckedSettings(*ContextsStage().info, values, ErrorCode::kInternal).value())
      .value();
}

// Tables of Laplace's distributions, and columns whose sizes fall by 4 octaves from `first`.
CodeTables MakeTables(std::uint32_t layers, std::uint32_t columns, const std::vector<int>& firsts) {
  CodeTables tables;
  const auto frequencies = testing::LaplaceTables();
  for (std::size_t t = 0; t < kCodeTables; ++t) {
    tables.frequencies[t] = frequencies[t];
    double sum = 0;
    for (int s = 0; s < 255; ++s)
      sum += frequencies[t][static_cast<std::size_t>(s)] * std::abs(s - 127);
    tables.mean_size[t] = static_cast<std::uint16_t>(sum / 16);
  }
  for (const int first : firsts) {
    auto& point = tables.points.emplace_back();
    point.step = static_cast<float>(tables.points.size());
    for (std::uint32_t p = 0; p < 2 * layers; ++p) {
      auto& plane = point.planes.emplace_back();
      for (std::uint32_t c = 0; c < columns; ++c) {
        plane.column.push_back(
            static_cast<std::int8_t>(first - static_cast<int>(16 * c / columns)));
      }
      for (int c = 0; c < static_cast<int>(kTokenClasses); ++c) {
        plane.klass[static_cast<std::size_t>(c)] = static_cast<std::int8_t>(2 * c - 12);
      }
      plane.energy = {0, 100, 100, 56};
      if (p % 2 == 0) plane.energy = {0, 128, 128, 0};
    }
  }
  return tables;
}

CalibrationArtefact MakeArtefact(CodeTables tables) {
  CalibrationArtefact::Contents contents;
  contents.code_tables = std::move(tables);
  return {std::move(contents), Fingerprint{}};
}

struct Planes {
  std::vector<SymbolPlane> planes;
  std::vector<std::vector<std::uint8_t>> storage;

  Planes() = default;
  Planes(const Planes& other) : planes(other.planes), storage(other.storage) { Bind(); }
  Planes& operator=(const Planes&) = delete;
  ~Planes() = default;
  void Bind() {
    for (std::size_t p = 0; p < planes.size(); ++p) planes[p].symbols = storage[p];
  }
  SymbolPlane& Add(std::uint32_t layer, PlaneKind kind, std::uint32_t tokens, std::uint32_t columns,
                   std::uint32_t alphabet = kAlphabet) {
    SymbolPlane& plane = planes.emplace_back();
    plane.layer = layer;
    plane.kind = kind;
    plane.tokens = tokens;
    plane.columns = columns;
    plane.alphabet = alphabet;
    storage.emplace_back(std::size_t{tokens} * columns, static_cast<std::uint8_t>(alphabet / 2));
    Bind();
    return plane;
  }
};

struct Kind {
  std::uint32_t layers = 4;
  std::uint32_t tokens = 100;
  std::uint32_t columns = 48;
  int first = 30;              // table of the first column, of a nominal token
  int plane_quarters = 0;      // by how much all of a plane is off, in turn up and down
  double token_octaves = 0.7;  // spread of tokens, the same in all planes
  bool classes = true;
};

// As a model's residuals: Laplace, by column, class and token.
Planes Draw(const Kind& kind, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0.0, kind.token_octaves);
  std::vector<double> energies(kind.tokens);
  for (double& energy : energies) energy = normal(random);
  Planes planes;
  for (std::uint32_t p = 0; p < 2 * kind.layers; ++p) {
    auto& plane = planes.Add(p / 2, p % 2 == 0 ? PlaneKind::kKey : PlaneKind::kValue, kind.tokens,
                             kind.columns);
    const int off = p % 4 < 2 ? kind.plane_quarters : -kind.plane_quarters;
    for (std::uint32_t t = 0; t < kind.tokens; ++t) {
      if (kind.classes) plane.token_classes.push_back(static_cast<std::uint8_t>(3 + random() % 7));
      const int by_class = kind.classes ? 2 * plane.token_classes[t] - 12 : 0;
      for (std::uint32_t c = 0; c < kind.columns; ++c) {
        const double table =
            kind.first - static_cast<int>(16 * c / kind.columns) + by_class + off + 4 * energies[t];
        const auto index = static_cast<std::size_t>(std::clamp(std::round(table), 0.0, 59.0));
        planes.storage[p][std::size_t{t} * kind.columns + c] =
            testing::LaplaceSymbol(index, random);
      }
    }
  }
  return planes;
}

struct Frame {
  explicit Frame(const CalibrationArtefact& artefact, unsigned threads = 1) : workers(threads) {
    context.artefact = &artefact;
    context.arena = &arena;
    context.workers = &workers;
  }
  Arena arena;
  Workers workers;
  FrameContext context;
};

std::vector<std::byte> Encode(const CalibrationArtefact& artefact, const Planes& planes,
                              Choices choices = {}, unsigned threads = 1) {
  Frame frame(artefact, threads);
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  const auto codec = MakeContexts(choices);
  const auto status = codec->Encode(frame.context, planes.planes, writer);
  EXPECT_TRUE(status) << status.error().message;
  EXPECT_LE(bytes.size(), codec->MaxEncodedBytes(planes.planes));
  return bytes;
}

Status Decode(const CalibrationArtefact& artefact, std::span<const std::byte> bytes, Planes& planes,
              Choices choices = {}, unsigned threads = 1) {
  Frame frame(artefact, threads);
  ByteReader in(bytes);
  for (auto& symbols : planes.storage) std::fill(symbols.begin(), symbols.end(), 0xEE);
  auto status = MakeContexts(choices)->Decode(frame.context, in, planes.planes);
  if (status && in.remaining() > 0) return MakeError(ErrorCode::kCorruptData, "left over");
  return status;
}

void ExpectRoundTrip(const CalibrationArtefact& artefact, const Planes& planes,
                     Choices choices = {}) {
  const auto bytes = Encode(artefact, planes, choices);
  for (const unsigned threads : {1U, 3U}) {
    EXPECT_EQ(Encode(artefact, planes, choices, threads), bytes);
    Planes decoded = planes;
    const auto status = Decode(artefact, bytes, decoded, choices, threads);
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_EQ(decoded.storage, planes.storage);
  }
}

TEST(Contexts, RoundTripOnEveryInstructionSetWithTheSameBytes) {
  const auto artefact = MakeArtefact(MakeTables(4, 48, {30, 26}));
  const Planes planes = Draw({.plane_quarters = 3}, 1);
  std::vector<std::byte> first;
  ForEachIsa([&] {
    for (const Choices choices : {Choices{}, Choices{.energy = 0}, Choices{.shift = 0},
                                  Choices{.point = 2, .energy = 0, .shift = 0}}) {
      ExpectRoundTrip(artefact, planes, choices);
    }
    const auto bytes = Encode(artefact, planes);
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first);
  });
}

// The code length of the planes, from the definition and with the logarithms of doubles.
double IdealBits(const CodeTables& tables, const Planes& planes, std::span<const std::byte> bytes) {
  const auto& point = tables.points[static_cast<std::size_t>(bytes[0])];
  std::vector<std::vector<std::int32_t>> energies;
  double bits = 0;
  for (std::size_t p = 0; p < planes.planes.size(); ++p) {
    const SymbolPlane& plane = planes.planes[p];
    const auto& contexts = point.planes[p];
    auto& mine = energies.emplace_back();
    const int shift = static_cast<int>(bytes[1 + p]) - 64;
    for (std::uint32_t t = 0; t < plane.tokens; ++t) {
      const auto klass = contexts.klass[plane.token_classes[t]];
      std::array<std::int32_t, 3> before{};
      const std::size_t layer = p / 2;
      if (layer > 0) before = {energies[2 * layer - 2][t], energies[2 * layer - 1][t], 0};
      if (p % 2 == 1) before[2] = energies[p - 1][t];
      const int by_token = EnergyShift(contexts.energy, before);
      std::uint64_t sum = 0;
      std::uint64_t expected = 0;
      for (std::uint32_t c = 0; c < plane.columns; ++c) {
        const std::uint8_t symbol = plane.symbols[std::size_t{t} * plane.columns + c];
        const int base = contexts.column[c] + klass;
        const auto& table =
            tables
                .frequencies[static_cast<std::size_t>(std::clamp(base + by_token + shift, 0, 59))];
        const bool escaped = table[symbol] == 0;
        bits += 12 - std::log2(table[escaped ? 255 : symbol]) + (escaped ? 8 : 0);
        sum += static_cast<std::uint64_t>(std::abs(symbol - 127));
        expected += tables.mean_size[static_cast<std::size_t>(std::clamp(base, 0, 59))];
      }
      mine.push_back(TokenEnergy(sum, ExpectedLevel(expected)));
    }
  }
  return bits;
}

// Frames of the shape of a small model (30 layers, 3 heads of 64), from 0.2 to 4 bits per symbol.
TEST(Contexts, BytesAreWithinTwoPercentOfTheCodeLength) {
  const CodeTables tables = MakeTables(30, 192, {26});
  const auto artefact = MakeArtefact(tables);
  for (const auto& [tokens, first] : {std::pair{64U, 14}, {64U, 22}, {256U, 18}, {256U, 40}}) {
    const Planes planes = Draw({.layers = 30, .tokens = tokens, .columns = 192, .first = first}, 5);
    const auto bytes = Encode(artefact, planes);
    const double ideal = IdealBits(tables, planes, bytes) / 8;
    EXPECT_LE(static_cast<double>(bytes.size()), 1.02 * ideal) << tokens << " tokens, " << first;
    EXPECT_GE(static_cast<double>(bytes.size()), 0.995 * ideal);
  }
}

TEST(Contexts, EnergiesAndShiftsAndPointsShrinkWhatTheyAreMadeFor) {
  const auto artefact = MakeArtefact(MakeTables(8, 64, {30, 22, 38}));
  const Planes tokens = Draw({.layers = 8, .columns = 64, .token_octaves = 0.8}, 2);
  EXPECT_LT(static_cast<double>(Encode(artefact, tokens).size()),
            0.95 * static_cast<double>(Encode(artefact, tokens, {.energy = 0}).size()));
  const Planes off = Draw({.layers = 8, .columns = 64, .plane_quarters = 6, .token_octaves = 0}, 3);
  EXPECT_LT(static_cast<double>(Encode(artefact, off, {.energy = 0}).size()),
            0.97 * static_cast<double>(Encode(artefact, off, {.energy = 0, .shift = 0}).size()));
  for (const int first : {30, 22, 38}) {
    const Planes fitting = Draw({.layers = 8, .columns = 64, .first = first}, 4);
    const auto bytes = Encode(artefact, fitting, {.shift = 0});
    EXPECT_EQ(static_cast<int>(bytes[0]), first == 30 ? 0 : first == 22 ? 1 : 2);
    for (const double point : {1.0, 2.0, 3.0}) {
      EXPECT_LE(bytes.size(), Encode(artefact, fitting, {.point = point, .shift = 0}).size());
    }
  }
}

// Layers that hold fewer tokens, that are missing, planes of other shapes and alphabets, and two of
// one layer and kind.
TEST(Contexts, FramesMayBeOfAnyShape) {
  const auto artefact = MakeArtefact(MakeTables(6, 48, {30}));
  std::mt19937 random(4);
  Planes planes;
  planes.Add(0, PlaneKind::kKey, 90, 48).token_classes.assign(90, 4);
  planes.Add(0, PlaneKind::kValue, 37, 48);
  planes.Add(1, PlaneKind::kKey, 0, 48);
  planes.Add(1, PlaneKind::kValue, 90, 48).token_classes.assign(90, kDroppedToken);
  planes.Add(2, PlaneKind::kKey, 90, 50);
  planes.Add(2, PlaneKind::kValue, 91, 48);
  planes.Add(2, PlaneKind::kValue, 12, 48);
  planes.Add(4, PlaneKind::kKey, 64, 48, 256);
  planes.Add(5, PlaneKind::kKey, 90, 48, 16);
  planes.Add(5, PlaneKind::kValue, 90, 48, 1);
  planes.Add(5, PlaneKind::kValue, 90, 48);
  planes.Add(900, PlaneKind::kKey, 20, 48);
  for (std::size_t p = 0; p < planes.planes.size(); ++p) {
    for (auto& symbol : planes.storage[p]) {
      const std::uint32_t alphabet = planes.planes[p].alphabet;
      const int q = testing::LaplaceSymbol(10 + 4 * p, random) - 127;
      symbol = static_cast<std::uint8_t>(
          std::clamp<int>(static_cast<int>(alphabet / 2) + q, 0, static_cast<int>(alphabet) - 1));
    }
  }
  ForEachIsa([&] { ExpectRoundTrip(artefact, planes); });
  ExpectRoundTrip(artefact, Planes{});
}

TEST(Contexts, DroppedTokensCostNextToNothing) {
  const auto artefact = MakeArtefact(MakeTables(4, 48, {30}));
  Planes planes = Draw({.tokens = 300}, 1);
  const auto all = Encode(artefact, planes).size();
  for (std::size_t p = 0; p < planes.planes.size(); ++p) {
    for (std::size_t t = 0; t < 300; ++t) {
      if (t % 3 == 0) continue;
      planes.planes[p].token_classes[t] = kDroppedToken;
      std::fill_n(planes.storage[p].begin() + static_cast<std::ptrdiff_t>(48 * t), 48, 127);
    }
  }
  EXPECT_LT(static_cast<double>(Encode(artefact, planes).size()), 0.37 * static_cast<double>(all));
  ExpectRoundTrip(artefact, planes);
}

TEST(Contexts, WhatDoesNotShrinkIsPacked) {
  const auto artefact = MakeArtefact(MakeTables(2, 48, {30}));
  Planes planes = Draw({.layers = 2}, 1);
  std::mt19937 random(9);
  for (auto& symbol : planes.storage[1]) symbol = static_cast<std::uint8_t>(random() % 255);
  const auto bytes = Encode(artefact, planes);
  EXPECT_EQ(bytes[2], std::byte{kPackedContexts});
  EXPECT_NE(bytes[1], std::byte{kPackedContexts});
  ExpectRoundTrip(artefact, planes);
}

// Contents that no calibrator writes, but a reader of artefacts might let pass.
TEST(Contexts, OddTablesAreNoDanger) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    CodeTables tables = MakeTables(4, 48, {30, 20});
    for (auto& table : tables.frequencies) {
      if (trial % 2 == 0) break;
      std::shuffle(table.begin(), table.end() - 1, random);
    }
    for (auto& size : tables.mean_size) size = static_cast<std::uint16_t>(random());
    for (auto& point : tables.points) {
      for (auto& plane : point.planes) {
        for (auto& column : plane.column) column = static_cast<std::int8_t>(random());
        for (auto& klass : plane.klass) klass = static_cast<std::int8_t>(random());
        for (auto& weight : plane.energy) weight = static_cast<std::int16_t>(random());
      }
      if (trial % 3 == 0) point.planes.resize(5);
      if (trial % 3 == 1) point.planes[3].column.clear();
    }
    ExpectRoundTrip(MakeArtefact(tables), Draw({}, static_cast<unsigned>(trial)));
  }
}

TEST(Contexts, ArtefactsThatCannotBeUsedAreRefused) {
  const Planes planes = Draw({}, 1);
  const auto refused = [&](const CalibrationArtefact& artefact, Choices choices = {}) {
    Frame frame(artefact);
    std::vector<std::byte> bytes;
    ByteWriter writer(bytes);
    const auto status = MakeContexts(choices)->Encode(frame.context, planes.planes, writer);
    return status ? ErrorCode{} : status.error().code;
  };
  EXPECT_EQ(refused({CalibrationArtefact::Contents{}, Fingerprint{}}), ErrorCode::kMismatch);
  CodeTables unbalanced = MakeTables(4, 48, {30});
  ++unbalanced.frequencies[59][3];
  EXPECT_EQ(refused(MakeArtefact(unbalanced)), ErrorCode::kCorruptData);
  EXPECT_EQ(refused(MakeArtefact(MakeTables(4, 48, {}))), ErrorCode::kCorruptData);
  for (const double point : {0.0, 1.0, 2.0, 64.0}) {
    EXPECT_EQ(refused(MakeArtefact(MakeTables(4, 48, {30})), {.point = point}), ErrorCode{});
  }
}

// One codec object, as in a decoder that is given another artefact.
TEST(Contexts, TablesFollowTheArtefact) {
  const auto one = MakeArtefact(MakeTables(4, 48, {30}));
  const auto other = MakeArtefact(MakeTables(4, 48, {20}));
  const Planes planes = Draw({}, 1);
  const auto codec = MakeContexts();
  for (const CalibrationArtefact* artefact : {&one, &other, &one}) {
    Frame frame(*artefact);
    std::vector<std::byte> bytes;
    ByteWriter writer(bytes);
    ASSERT_TRUE(codec->Encode(frame.context, planes.planes, writer));
    EXPECT_EQ(bytes, Encode(*artefact, planes));
  }
}

TEST(Contexts, DamageIsRefusedOrStaysInTheAlphabet) {
  const auto artefact = MakeArtefact(MakeTables(4, 48, {30, 26}));
  Planes planes = Draw({}, 1);
  std::mt19937 random(3);
  for (auto& symbol : planes.storage[1]) symbol = static_cast<std::uint8_t>(random() % 255);
  for (std::size_t i = 0; i < 40; ++i) planes.storage[2][i * 50] = static_cast<std::uint8_t>(i);
  const auto good = Encode(artefact, planes);
  for (int trial = 0; trial < 1500; ++trial) {
    auto damaged = good;
    if (trial % 5 == 4) {
      damaged.resize(random() % damaged.size());
    } else {
      const std::size_t range = trial % 2 == 0 ? 30 : damaged.size();
      damaged[random() % range] ^= static_cast<std::byte>(1 + random() % 255);
    }
    Planes decoded = planes;
    const auto status = Decode(artefact, damaged, decoded, {}, 1 + trial % 2);
    if (!status) {
      ASSERT_EQ(status.error().code, ErrorCode::kCorruptData) << status.error().message;
      continue;
    }
    ASSERT_NE(trial % 5, 4) << "cut off";
    for (const auto& plane : decoded.planes) {
      ASSERT_LT(*std::max_element(plane.symbols.begin(), plane.symbols.end()), plane.alphabet);
    }
  }
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(Decode(artefact, longer, planes));
}

TEST(Contexts, SymbolsOutsideOfTheAlphabetAreRefused) {
  const auto artefact = MakeArtefact(MakeTables(4, 48, {30}));
  Planes planes = Draw({}, 1);
  planes.storage[3][77] = 255;
  Frame frame(artefact);
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  EXPECT_FALSE(MakeContexts()->Encode(frame.context, planes.planes, writer));
}

// Frames of a large model: more than one piece, cut between tokens.
TEST(Contexts, PiecesAreCutByTokens) {
  const auto artefact = MakeArtefact(MakeTables(2, 2048, {20}));
  const Planes planes = Draw({.layers = 2, .tokens = 300, .columns = 2048, .first = 20}, 1);
  ExpectRoundTrip(artefact, planes);
}

}  // namespace
}  // namespace kvserve
