// Size of the entropy coder's stream against the entropy, and its hostile headers.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "pipeline/settings.h"
#include "pipeline/testing/symbol_planes.h"

namespace kvserve {

const StageEntry& RansStage();

namespace {

using testing::Bell;
using testing::EntropyBytes;
using testing::Planes;

std::unique_ptr<Codec> MakeRans() {
  const StageInfo& info = *RansStage().info;
  return RansStage()
      .make_codec(CheckedSettings(info, DefaultValues(info), ErrorCode::kInternal).value())
      .value();
}

std::vector<std::byte> Encode(const Planes& planes, unsigned threads = 1) {
  return testing::EncodeSymbols(*MakeRans(), planes, threads);
}

Status Decode(std::span<const std::byte> bytes, Planes& planes, unsigned threads = 1) {
  return testing::DecodeSymbols(*MakeRans(), bytes, planes, threads);
}

TEST(Rans, LargePlanesCostTheirEntropyPlusOnePercent) {
  Planes planes;
  double ideal = 0.0;
  for (unsigned p = 0; p < 12; ++p) {
    const std::uint32_t alphabet = p % 3 == 2 ? 256 : p % 3 == 1 ? 16 : 6;
    planes.Add(192, alphabet, Bell(256 * 192, alphabet, alphabet / (5.0 + p), p));
    ideal += EntropyBytes(planes.storage.back());
  }
  EXPECT_LE(static_cast<double>(Encode(planes).size()), 1.01 * ideal);
}

TEST(Rans, PlanesAlikeShareATable) {
  Planes alike;
  for (unsigned p = 0; p < 40; ++p) alike.Add(8, 16, Bell(256, 16, 2.0, 1));
  Planes one;
  one.Add(8, 16, Bell(std::size_t{40} * 256, 16, 2.0, 1));
  EXPECT_LE(Encode(alike).size(), Encode(one).size() + 40 + 100);
}

// A table that fits the symbols need not fit the alphabet: K may have more levels than V.
TEST(Rans, TablesOfALargerAlphabetAreNotReused) {
  std::vector<std::uint8_t> low = Bell(512, 4, 0.5, 1);
  std::vector<std::uint8_t> wide = low;
  wide.push_back(15);
  Planes planes;
  planes.Add(1, 16, wide);
  planes.Add(1, 8, low);
  planes.Add(1, 16, wide);
  const auto bytes = Encode(planes);
  for (auto& symbols : planes.storage) std::fill(symbols.begin(), symbols.end(), 0);
  ASSERT_TRUE(Decode(bytes, planes));
  EXPECT_EQ(planes.storage[0], wide);
  EXPECT_EQ(planes.storage[1], low);
  EXPECT_EQ(planes.storage[2], wide);
}

// A wider plane's table would be cheap to reuse, but could yield symbols that the plane lacks.
TEST(Rans, TablesOfWiderAlphabetsAreNotReused) {
  Planes planes;
  planes.Add(64, 16, Bell(64 * 100, 16, 2.0, 1));
  planes.Add(8, 12, Bell(40, 12, 1.0, 2));
  const auto bytes = Encode(planes);
  const auto expected = planes.storage;
  const auto status = Decode(bytes, planes);
  ASSERT_TRUE(status.has_value()) << status.error().message;
  EXPECT_EQ(planes.storage, expected);
}

TEST(Rans, ConstantAndEmptyPlanesCostNothingPerSymbol) {
  Planes planes;
  planes.Add(100, 16, std::vector<std::uint8_t>(100000, 7));
  planes.Add(100, 1, std::vector<std::uint8_t>(100000, 0));
  planes.Add(100, 16, {});
  EXPECT_EQ(Encode(planes).size(), 2U + 1U);  // one piece without bytes
}

TEST(Rans, FlatPlanesArePacked) {
  Planes planes;
  std::mt19937 random(1);
  std::vector<std::uint8_t> symbols(9600);
  for (auto& symbol : symbols) symbol = static_cast<std::uint8_t>(random() % 16);
  planes.Add(96, 16, symbols);
  EXPECT_EQ(Encode(planes).size(), 1U + 2U + 4800U);
}

TEST(Rans, DamagedStreamsNeverGiveSymbolsOutsideTheAlphabet) {
  Planes planes;
  planes.Add(64, 16, Bell(64 * 100, 16, 2.0, 1));
  planes.Add(64, 6, Bell(64 * 100, 6, 1.0, 2));
  planes.Add(64, 6, std::vector<std::uint8_t>(640, 3));
  const auto good = Encode(planes);
  ASSERT_TRUE(Decode(good, planes));
  std::mt19937 random(3);
  for (int trial = 0; trial < 4000; ++trial) {
    auto damaged = good;
    const std::size_t range = trial % 2 == 0 ? 60 : damaged.size();  // headers more often
    damaged[random() % range] ^= static_cast<std::byte>(1 + random() % 255);
    if (!Decode(damaged, planes)) continue;
    for (const auto& plane : planes.planes) {
      ASSERT_LT(*std::max_element(plane.symbols.begin(), plane.symbols.end()), plane.alphabet);
    }
  }
}

TEST(Rans, TablesThatWereNotSentAreRefused) {
  Planes planes;
  planes.Add(64, 16, Bell(64 * 100, 16, 2.0, 1));
  auto bytes = Encode(planes);
  bytes[0] = std::byte{3};
  const auto status = Decode(bytes, planes);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace kvserve
