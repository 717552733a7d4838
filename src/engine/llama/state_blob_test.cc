#include "engine/llama/state_blob.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace kvserve {
namespace {

// Two caches: two layers of 3 cells, one layer of 2 cells out of order.
struct Sample {
  Sample() : storage(4096) {
    for (std::size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<std::byte>(i * 7);
    state.sequence = 5;
    state.caches.resize(2);
    Fill(state.caches[0], {4, 5, 6}, 2, 12);
    Fill(state.caches[1], {6, 5}, 1, 8);
  }
  void Fill(StateCache& cache, std::vector<std::int32_t> positions, std::size_t layers,
            std::uint64_t row_bytes) {
    cache.positions = std::move(positions);
    for (std::size_t i = 0; i < layers; ++i) {
      cache.keys.push_back(Rows(cache, row_bytes));
      cache.values.push_back(Rows(cache, row_bytes * 2));
    }
  }
  StateRows Rows(const StateCache& cache, std::uint64_t row_bytes) {
    const std::size_t bytes = cache.positions.size() * row_bytes;
    const StateRows rows{DType::kBFloat16, row_bytes, std::span(storage).subspan(used, bytes)};
    used += bytes;
    return rows;
  }

  std::vector<std::byte> storage;
  std::size_t used = 0;
  SequenceState state;
};

std::vector<std::byte> Bytes(const SequenceState& state) {
  std::vector<std::byte> blob;
  EXPECT_TRUE(WriteState(state, blob));
  return blob;
}

void Put32(std::vector<std::byte>& blob, std::size_t at, std::uint32_t value) {
  std::memcpy(blob.data() + at, &value, sizeof value);
}

// Offsets in the sample's blob: header 8, streams 4, cells 4, three cells of 12 bytes.
constexpr std::size_t kStreams = 8;
constexpr std::size_t kCells = 12;
constexpr std::size_t kFirstCell = 16;
constexpr std::size_t kTransposed = kFirstCell + 3 * 12;
constexpr std::size_t kFirstType = kTransposed + 8;

TEST(StateBlob, RoundTrips) {
  const Sample sample;
  const auto blob = Bytes(sample.state);
  const auto parsed = ParseState(blob, true);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->sequence, 5);
  ASSERT_EQ(parsed->caches.size(), 2U);
  EXPECT_EQ(parsed->caches[1].positions, (std::vector<std::int32_t>{6, 5}));
  EXPECT_EQ(parsed->caches[0].keys.size(), 2U);
  EXPECT_EQ(parsed->caches[0].values[1].row_bytes, 24U);
  EXPECT_EQ(Bytes(*parsed), blob);
}

TEST(StateBlob, CacheWithoutCellsHasNoLayers) {
  Sample sample;
  sample.state.caches[1] = StateCache{};
  const auto blob = Bytes(sample.state);
  const auto parsed = ParseState(blob, true);
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_EQ(parsed->caches.size(), 2U);
  EXPECT_TRUE(parsed->caches[1].keys.empty());
}

TEST(StateBlob, SinglePlaneLayersHaveNoValues) {
  Sample sample;
  for (StateCache& cache : sample.state.caches) cache.values.clear();
  const auto blob = Bytes(sample.state);
  EXPECT_TRUE(ParseState(blob, false));
  EXPECT_FALSE(ParseState(blob, true));
}

TEST(StateBlob, EveryTruncationIsRefusedUnlessACacheEndsThere) {
  const Sample sample;
  const auto blob = Bytes(sample.state);
  SequenceState first_only = sample.state;
  first_only.caches.pop_back();
  const std::size_t first_cache_end = Bytes(first_only).size();
  for (std::size_t length = 0; length < blob.size(); ++length) {
    const auto parsed = ParseState(std::span(blob).first(length), true);
    if (length == first_cache_end) continue;  // a well-formed state of one cache
    ASSERT_FALSE(parsed) << length;
    EXPECT_EQ(parsed.error().code, ErrorCode::kCorruptData) << length;
  }
}

TEST(StateBlob, BytesLeftOverAreRefused) {
  auto blob = Bytes(Sample().state);
  blob.push_back(std::byte{0});
  EXPECT_EQ(ParseState(blob, true).error().code, ErrorCode::kCorruptData);
}

TEST(StateBlob, NamesWhatItDoesNotUnderstand) {
  struct Case {
    std::size_t at;
    std::uint32_t value;
    ErrorCode code;
    const char* word;
  };
  const Case cases[] = {
      {0, 0x12345678, ErrorCode::kUnsupported, "magic"},
      {kStreams, 2, ErrorCode::kUnsupported, "streams"},
      {kCells, 0xFFFFFFFF, ErrorCode::kCorruptData, "cells"},
      {kFirstCell, 0x80000000, ErrorCode::kCorruptData, "position"},
      {kFirstCell, 5, ErrorCode::kCorruptData, "twice"},
      {kFirstCell + 4, 2, ErrorCode::kUnsupported, "sequence count"},
      {kFirstCell + 8, 6, ErrorCode::kUnsupported, "sequence of a cell"},
      {kTransposed, 1, ErrorCode::kUnsupported, "transposed"},
      {kTransposed + 4, 0, ErrorCode::kCorruptData, "layers"},
      {kTransposed + 4, 0xFFFFFFFF, ErrorCode::kCorruptData, "layers"},
      {kFirstType, 8, ErrorCode::kUnsupported, "type"},
      {kFirstType, 255, ErrorCode::kUnsupported, "type"},
      {kFirstType + 4, 0, ErrorCode::kCorruptData, "row size"},
      {kFirstType + 4, 13, ErrorCode::kCorruptData, "row size"},
      {kFirstType + 8, 0x80000000, ErrorCode::kCorruptData, "row size"},
      {kFirstType + 4, 0x01000000, ErrorCode::kCorruptData, "rows"},
  };
  for (const Case& c : cases) {
    auto blob = Bytes(Sample().state);
    Put32(blob, c.at, c.value);
    const auto parsed = ParseState(blob, true);
    ASSERT_FALSE(parsed) << c.at << " " << c.word;
    EXPECT_EQ(parsed.error().code, c.code) << parsed.error().message;
    EXPECT_NE(parsed.error().message.find(c.word), std::string::npos) << parsed.error().message;
  }
}

// Whatever parses must be consistent: writing it again gives the same bytes.
TEST(StateBlob, FlippedBytesParseConsistentlyOrNotAtAll) {
  const auto blob = Bytes(Sample().state);
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    auto damaged = blob;
    const unsigned flips = 1 + random() % 4;
    for (unsigned i = 0; i < flips; ++i) {
      damaged[random() % damaged.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    }
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    const auto parsed = ParseState(damaged, true);
    if (!parsed) {
      ++refused;
      continue;
    }
    for (const StateCache& cache : parsed->caches) {
      for (const StateRows& rows : cache.keys) {
        ASSERT_EQ(rows.rows.size(), cache.positions.size() * rows.row_bytes);
      }
    }
    ASSERT_EQ(Bytes(*parsed), damaged);
  }
  EXPECT_GT(refused, 1000);
}

TEST(StateBlob, WriterRefusesRowsOfTheWrongLength) {
  Sample sample;
  sample.state.caches[0].keys[0].row_bytes = 10;
  std::vector<std::byte> blob;
  EXPECT_EQ(WriteState(sample.state, blob).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvserve
