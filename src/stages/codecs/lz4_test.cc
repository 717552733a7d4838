#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "pipeline/settings.h"
#include "pipeline/stage.h"

namespace kvserve {

const StageEntry& Lz4Stage();

namespace {

// Planes of every size around the limits of a piece; half of the pieces do not shrink.
struct Sample {
  std::vector<std::vector<std::uint8_t>> storage;
  std::vector<SymbolPlane> planes;

  Sample() {
    std::mt19937 random(3);
    for (const auto& [tokens, columns] :
         {std::pair(10U, 30U), std::pair(0U, 64U), std::pair(700U, 1000U), std::pair(1U, 400000U),
          std::pair(2U, 400000U), std::pair(256U, 1024U), std::pair(257U, 1024U),
          std::pair(128U, 1024U), std::pair(128U, 1024U), std::pair(0U, 64U), std::pair(3U, 3U)}) {
      SymbolPlane plane;
      plane.tokens = tokens;
      plane.columns = columns;
      plane.alphabet = 200;
      auto& symbols = storage.emplace_back(plane.count());
      const bool predictable = storage.size() % 2 == 0;
      for (auto& symbol : symbols) {
        symbol = static_cast<std::uint8_t>(predictable ? 7 : random() % 200);
      }
      planes.push_back(plane);
    }
    for (std::size_t p = 0; p < planes.size(); ++p) planes[p].symbols = storage[p];
  }
};

std::unique_ptr<Codec> Make() {
  const auto settings =
      CheckedSettings(*Lz4Stage().info, DefaultValues(*Lz4Stage().info), ErrorCode::kInternal);
  return Lz4Stage().make_codec(settings.value()).value();
}

std::vector<std::byte> Encode(const Sample& sample, unsigned threads) {
  Arena arena;
  Workers workers(threads);
  const FrameContext frame{.arena = &arena, .workers = &workers};
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  EXPECT_TRUE(Make()->Encode(frame, sample.planes, writer));
  return bytes;
}

TEST(Lz4, PiecesDoNotDependOnThreadsAndDecodeAlone) {
  const Sample sample;
  const auto bytes = Encode(sample, 1);
  EXPECT_EQ(Encode(sample, 3), bytes);
  Arena arena;
  Workers workers(2);
  const FrameContext frame{.arena = &arena, .workers = &workers};
  Sample whole;
  for (auto& symbols : whole.storage) std::fill(symbols.begin(), symbols.end(), 99);
  ByteReader reader(bytes);
  ASSERT_TRUE(Make()->Decode(frame, reader, whole.planes));
  EXPECT_EQ(whole.storage, sample.storage);

  const auto codec = Make();
  ByteReader in(bytes);
  const auto opened = codec->Open(frame, in, sample.planes);
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(in.remaining(), 0U);
  std::vector<std::uint8_t> all;
  for (std::size_t i = 0; i < (*opened)->pieces().size(); ++i) {
    const SymbolPiece& piece = (*opened)->pieces()[i];
    std::size_t count = std::size_t{piece.rows} * sample.planes[piece.first_plane].columns;
    for (std::size_t p = 0; piece.rows == 0 && p < piece.planes; ++p) {
      count += sample.planes[piece.first_plane + p].count();
    }
    std::vector<std::uint8_t> symbols(count);
    ASSERT_TRUE((*opened)->Read(i, symbols, arena)) << i;
    all.insert(all.end(), symbols.begin(), symbols.end());
  }
  std::vector<std::uint8_t> expected;
  for (const auto& symbols : sample.storage) {
    expected.insert(expected.end(), symbols.begin(), symbols.end());
  }
  EXPECT_TRUE(all == expected);
}

TEST(Lz4, DamageIsRefused) {
  const Sample sample;
  const auto bytes = Encode(sample, 1);
  ASSERT_EQ(bytes.front(), std::byte{1});
  const auto decodes = [](const std::vector<std::byte>& stream) {
    Arena arena;
    Workers workers;
    const FrameContext frame{.arena = &arena, .workers = &workers};
    Sample out;
    ByteReader reader(stream);
    const Status status = Make()->Decode(frame, reader, out.planes);
    EXPECT_TRUE(status || status.error().code == ErrorCode::kCorruptData);
    return status.has_value();
  };
  EXPECT_TRUE(decodes(bytes));
  auto form = bytes;
  form.front() = std::byte{2};
  EXPECT_FALSE(decodes(form));
  form.front() = std::byte{0};
  EXPECT_FALSE(decodes(form));
  for (const std::size_t size : {bytes.size() - 1, bytes.size() + 1}) {
    auto resized = bytes;
    resized.resize(size);
    EXPECT_FALSE(decodes(resized)) << size;
  }
}

}  // namespace
}  // namespace kvserve
