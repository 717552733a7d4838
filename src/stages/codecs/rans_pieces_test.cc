// Whole requests: sizes against the entropy of each plane, pieces in any order and on many threads,
// streams of version 1, calibrated classes, and hostile pieces.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/rans/rans.h"
#include "kernels/rans/rans_modes.h"
#include "pipeline/settings.h"
#include "pipeline/testing/symbol_planes.h"

namespace kvserve {

const StageEntry& RansStage();

namespace {

using testing::Bell;
using testing::EntropyBytes;
using testing::Frame;
using testing::Planes;

std::unique_ptr<Codec> MakeRans(std::string_view tables = "frame", int version = 2) {
  const StageInfo& info = *RansStage().info;
  auto values = DefaultValues(info);
  values[0].value = ParseValue(info.parameters[0], tables).value();
  if (version == 1) values.clear();
  return RansStage()
      .make_codec(
          CheckedSettings(info, static_cast<std::uint8_t>(version), values, ErrorCode::kInternal)
              .value())
      .value();
}

std::vector<std::byte> Encode(const Planes& planes, unsigned threads = 1) {
  return testing::EncodeSymbols(*MakeRans(), planes, threads);
}

Status Decode(std::span<const std::byte> bytes, Planes& planes, unsigned threads = 1) {
  return testing::DecodeSymbols(*MakeRans(), bytes, planes, threads);
}

// K and V of some layers, after a uniform quantizer over +-3.8 sigma; spreads differ by layer.
struct Shape {
  std::uint32_t layers;
  std::uint32_t tokens;
  std::uint32_t columns;
};

Planes Request(const Shape& shape, std::uint32_t k_levels, std::uint32_t v_levels,
               double* ideal_bytes) {
  Planes planes;
  *ideal_bytes = 0.0;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (const std::uint32_t levels : {k_levels, v_levels}) {
      const double sigma = (levels - 1) / 7.6 * (0.8 + 0.02 * (layer % 12));
      planes.Add(shape.columns, levels,
                 Bell(std::size_t{shape.tokens} * shape.columns, levels, sigma, layer + levels));
      *ideal_bytes += EntropyBytes(planes.storage.back());
    }
  }
  return planes;
}

TEST(RansRequest, CostsAtMostOnePercentBeyondTheEntropy) {
  const Shape shapes[] = {{30, 256, 192}, {4, 256, 1024}, {1, 3000, 1024}};
  for (const auto& [layers, tokens, columns] : shapes) {
    for (const auto& [k, v] : {std::pair{8U, 4U}, {16U, 8U}, {30U, 16U}}) {
      double ideal = 0.0;
      const Planes planes = Request({layers, tokens, columns}, k, v, &ideal);
      EXPECT_LE(static_cast<double>(Encode(planes).size()), 1.01 * ideal) << columns << " " << k;
    }
  }
}

TEST(RansRequest, ShortFramesCostAtMostThreePercentBeyondTheEntropy) {
  for (const std::uint32_t tokens : {64U, 127U, 128U}) {
    for (const auto& [k, v] : {std::pair{8U, 4U}, {16U, 8U}, {30U, 16U}}) {
      double ideal = 0.0;
      const Planes planes = Request({30, tokens, 192}, k, v, &ideal);
      EXPECT_LE(static_cast<double>(Encode(planes).size()), 1.03 * ideal) << tokens << " " << k;
    }
  }
}

// Planes of every kind, with one that is cut.
Planes Mixed() {
  std::mt19937 random(4);
  Planes planes;
  planes.Add(192, 16, Bell(192 * 300, 16, 2.0, 1));
  planes.Add(64, 8, std::vector<std::uint8_t>(6400, 3));
  planes.Add(1000, 7, Bell(1000 * 1300, 7, 1.1, 2));  // cut into 3 pieces
  planes.Add(192, 30, Bell(192 * 300, 30, 3.0, 3));
  planes.Add(64, 1, std::vector<std::uint8_t>(640, 0));
  planes.Add(64, 16, {});
  std::vector<std::uint8_t> flat(700 * 1000);
  for (auto& symbol : flat) symbol = static_cast<std::uint8_t>(random() % 5);
  planes.Add(1000, 5, flat);  // packed, cut into 2 pieces
  planes.Add(192, 256, Bell(192 * 300, 256, 30.0, 4));
  planes.Add(1000, 3, std::vector<std::uint8_t>(600 * 1000, 2));  // constant, cut
  planes.Add(10, 4, Bell(200, 4, 0.7, 5));
  return planes;
}

TEST(RansPieces, BytesDoNotDependOnTheNumberOfThreads) {
  const Planes planes = Mixed();
  const auto one = Encode(planes, 1);
  EXPECT_EQ(Encode(planes, 3), one);
  for (const unsigned threads : {1U, 3U}) {
    Planes decoded = Mixed();
    for (auto& symbols : decoded.storage) std::fill(symbols.begin(), symbols.end(), 0xEE);
    ASSERT_TRUE(Decode(one, decoded, threads));
    EXPECT_EQ(decoded.storage, planes.storage);
  }
}

// Where each piece's symbols begin in all symbols of the frame.
std::vector<std::size_t> Offsets(const SymbolReader& reader, const Planes& planes) {
  std::vector<std::size_t> offsets = {0};
  for (const SymbolPiece& piece : reader.pieces()) {
    std::size_t symbols = 0;
    for (std::size_t p = piece.first_plane; p < piece.first_plane + piece.planes; ++p) {
      const SymbolPlane& plane = planes.planes[p];
      symbols += piece.rows > 0 ? std::size_t{piece.rows} * plane.columns : plane.count();
    }
    offsets.push_back(offsets.back() + symbols);
  }
  return offsets;
}

TEST(RansPieces, ReadInAnyOrderAndByManyThreads) {
  const Planes planes = Mixed();
  const auto bytes = Encode(planes);
  std::vector<std::uint8_t> all;
  for (const auto& symbols : planes.storage) all.insert(all.end(), symbols.begin(), symbols.end());
  for (const unsigned threads : {1U, 3U}) {
    Frame frame(threads);
    ByteReader in(bytes);
    const auto codec = MakeRans();
    const auto opened = codec->Open(frame.context, in, planes.planes);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(in.remaining(), 0U);
    const SymbolReader& reader = **opened;
    ASSERT_GE(reader.pieces().size(), 6U);
    const auto offsets = Offsets(reader, planes);
    ASSERT_EQ(offsets.back(), all.size());
    std::vector<std::size_t> order(reader.pieces().size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(threads));
    std::vector<std::uint8_t> decoded(all.size(), 0xEE);
    ASSERT_TRUE(frame.workers.Run(order.size(), [&](std::size_t i, Arena& scratch) {
      const std::size_t piece = order[i];
      const std::size_t symbols = offsets[piece + 1] - offsets[piece];
      return reader.Read(piece, std::span(decoded).subspan(offsets[piece], symbols), scratch);
    }));
    EXPECT_EQ(decoded, all);
  }
}

TEST(RansPieces, NoPlanesTakeNoBytes) {
  Planes planes;
  EXPECT_TRUE(Encode(planes).empty());
  EXPECT_TRUE(Decode({}, planes));
}

// Damaged lengths, tables, states and words.
TEST(RansPieces, DamageIsRefusedOrStaysInTheAlphabet) {
  Planes planes;
  planes.Add(64, 16, Bell(64 * 100, 16, 2.0, 1));
  planes.Add(64, 200, Bell(64 * 50, 200, 20.0, 2));
  planes.Add(1000, 3, Bell(600 * 1000, 3, 0.3, 3));
  const auto good = Encode(planes);
  std::mt19937 random(3);
  for (int trial = 0; trial < 600; ++trial) {
    auto damaged = good;
    const std::size_t range = trial % 2 == 0 ? 250 : damaged.size();
    if (trial % 5 == 4) {
      damaged.resize(random() % damaged.size());
    } else {
      damaged[random() % range] ^= static_cast<std::byte>(1 + random() % 255);
    }
    const auto status = Decode(damaged, planes);
    if (!status) {
      ASSERT_EQ(status.error().code, ErrorCode::kCorruptData) << status.error().message;
      continue;
    }
    for (const auto& plane : planes.planes) {
      ASSERT_LT(*std::max_element(plane.symbols.begin(), plane.symbols.end()), plane.alphabet);
    }
  }
}

TEST(RansPieces, LengthsMustFillTheSection) {
  Planes planes;
  planes.Add(8, 2, {0, 1, 0, 1, 0, 1, 0, 1});
  const std::vector<std::byte> good = {std::byte{0}, std::byte{1}, std::byte{0xAA}};
  ASSERT_EQ(Encode(planes), good);
  for (const int length : {0, 2, 127}) {
    auto damaged = good;
    damaged[1] = static_cast<std::byte>(length);
    const auto status = Decode(damaged, planes);
    ASSERT_FALSE(status) << length;
    EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
  }
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(Decode(longer, planes));
}

// A version-1 stream from the parts that define it.
std::vector<std::byte> EncodeVersion1(const Planes& planes, unsigned lanes_log2) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  std::vector<RansPlaneCosts> costs(planes.planes.size());
  SentRansTables sent;
  std::vector<RansPart> parts;
  for (std::size_t p = 0; p < costs.size(); ++p) {
    costs[p].counts = CountSymbols(planes.storage[p]);
    costs[p].alphabet = planes.planes[p].alphabet;
    WeighRansModes({}, UINT64_MAX >> 20, costs[p]);
    const RansMode mode = WriteRansMode(costs[p], {}, sent, out);
    if (mode.table != nullptr) parts.push_back({planes.storage[p], mode.table});
  }
  out.Put(static_cast<std::uint8_t>(lanes_log2));
  RansEncodeRef(parts, lanes_log2, RansLayout::kIntervals, out);
  return bytes;
}

TEST(RansVersion1, StillDecodes) {
  Planes planes;
  planes.Add(64, 16, Bell(64 * 100, 16, 2.0, 1));
  planes.Add(64, 8, std::vector<std::uint8_t>(640, 3));
  planes.Add(64, 200, Bell(64 * 100, 200, 20.0, 2));
  const auto expected = planes.storage;
  const auto codec = MakeRans("frame", 1);
  for (const unsigned lanes_log2 : {0U, 3U, 5U, 6U}) {
    const auto bytes = EncodeVersion1(planes, lanes_log2);
    for (auto& symbols : planes.storage) std::fill(symbols.begin(), symbols.end(), 0xEE);
    Frame frame(3);
    ByteReader in(bytes);
    const auto status = codec->Decode(frame.context, in, planes.planes);
    EXPECT_EQ(status.has_value(), lanes_log2 <= 5);
    if (status) {
      EXPECT_EQ(planes.storage, expected);
    }
    planes.storage = expected;
    for (std::size_t p = 0; p < 3; ++p) planes.planes[p].symbols = planes.storage[p];
  }
  std::vector<std::byte> out;
  ByteWriter writer(out);
  Frame frame;
  EXPECT_EQ(codec->Encode(frame.context, planes.planes, writer).error().code,
            ErrorCode::kUnsupported);
}

// An artefact with a class for alphabet 16 and, if `flat`, one that fits nothing.
CalibrationArtefact Calibrated(bool flat) {
  EntropyClasses classes{.alphabet = 16, .frequencies = {}};
  RansTable even{};
  std::fill_n(even.begin(), 16, std::uint16_t{256});
  if (flat) classes.frequencies.push_back(even);
  SymbolCounts counts = CountSymbols(Bell(100000, 16, 2.0, 77));
  for (std::size_t s = 0; s < 16; ++s) ++counts[s];
  classes.frequencies.push_back(NormaliseCounts(counts));
  CalibrationArtefact::Contents contents;
  contents.entropy.push_back(classes);
  return {contents, Fingerprint{}};
}

TEST(RansCalibrated, ClassesTakeThePlaceOfTables) {
  Planes planes;
  for (unsigned p = 0; p < 3; ++p) planes.Add(64, 16, Bell(64 * 100, 16, 2.0, p));
  planes.Add(64, 6, Bell(64 * 100, 6, 1.0, 9));  // no classes for this alphabet
  const CalibrationArtefact artefact = Calibrated(true);
  const auto codec = MakeRans("calibrated");
  EXPECT_TRUE(codec->needs_artefact());
  EXPECT_FALSE(MakeRans()->needs_artefact());
  Frame frame(2, &artefact);
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  ASSERT_TRUE(codec->Encode(frame.context, planes.planes, writer));
  for (std::size_t p = 0; p < 3; ++p) EXPECT_EQ(bytes[p], std::byte{kRansCalibrated + 1});
  EXPECT_EQ(bytes[3], std::byte{kRansNewTable});
  EXPECT_LT(bytes.size(), Encode(planes).size());
  const auto expected = planes.storage;
  for (auto& symbols : planes.storage) std::fill(symbols.begin(), symbols.end(), 0xEE);
  ByteReader in(bytes);
  ASSERT_TRUE(codec->Decode(frame.context, in, planes.planes));
  EXPECT_EQ(planes.storage, expected);

  // Class 1 does not exist in this one, and without the parameter there are no classes.
  const CalibrationArtefact other = Calibrated(false);
  Frame without(1, &other);
  ByteReader again(bytes);
  const auto status = codec->Decode(without.context, again, planes.planes);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
  EXPECT_FALSE(Decode(bytes, planes));
}

TEST(RansRequest, SymbolsOutsideOfTheAlphabetAreRefused) {
  Planes planes;
  auto symbols = Bell(6400, 16, 2.0, 1);
  symbols[77] = 16;
  planes.Add(64, 16, symbols);
  Frame frame;
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  EXPECT_FALSE(MakeRans()->Encode(frame.context, planes.planes, writer));
}

}  // namespace
}  // namespace kvserve
