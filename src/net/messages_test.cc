#include "net/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "net/testing/allocation_watch.h"
#include "net/testing/message_rows.h"

namespace kvserve {
namespace {

using testing::Encoded;
using testing::MakeRow;
using testing::MessageRow;

using Bytes = std::vector<std::byte>;

PrefillRequest SampleRequest() {
  return {"hadamard|uniform:k_levels=16,v_levels=8|rans",
          {1, 2, 3, 49151, 2147483647},
          256,
          2,
          6,
          30000};
}
TransferEnd SampleEnd() {
  return {4, 1000, 1, 23040000, 3000000, 1.5, 0.25, "lossless"};
}
ChunkInfo SampleInfo() {
  return {{256, 512}, 5898240, 0.5, 0.01};
}

Bytes EncodedChunk() {
  Bytes payload(3, std::byte{9});
  BeginChunk(payload);
  for (int i = 0; i < 40; ++i) payload.push_back(static_cast<std::byte>(i));
  EXPECT_TRUE(FinishChunk(SampleInfo(), payload).has_value());
  return payload;
}

std::vector<MessageRow> Rows() {
  std::vector<MessageRow> rows;
  rows.push_back(MakeRow("request", SampleRequest(), DecodePrefillRequest));
  rows.push_back(MakeRow("started", PrefillStarted{999, 4, 0.001}, DecodePrefillStarted));
  rows.push_back(MakeRow("end", SampleEnd(), DecodeTransferEnd));
  rows.push_back(MakeRow("abort", Abort{ErrorCode::kDeadlineExceeded, "too late"}, DecodeAbort));
  rows.push_back(MakeRow("ping", Ping{77}, DecodePing));
  rows.push_back({"chunk", EncodedChunk(),
                  [](std::span<const std::byte> bytes) -> Result<Bytes> {
                    auto chunk = DecodeChunk(bytes);
                    if (!chunk) return tl::unexpected<Error>(chunk.error());
                    Bytes again;
                    BeginChunk(again);
                    again.insert(again.end(), chunk->frame.begin(), chunk->frame.end());
                    EXPECT_TRUE(FinishChunk(chunk->info, again).has_value());
                    return again;
                  },
                  true});
  return rows;
}

TEST(Messages, ValuesRoundTrip) {
  EXPECT_EQ(DecodePrefillRequest(Encoded(SampleRequest())).value(), SampleRequest());
  EXPECT_EQ(DecodeTransferEnd(Encoded(SampleEnd())).value(), SampleEnd());
  const PrefillStarted started{999, 4, 0.001};
  EXPECT_EQ(DecodePrefillStarted(Encoded(started)).value(), started);
  const Abort abort{ErrorCode::kUnavailable, "store gone"};
  EXPECT_EQ(DecodeAbort(Encoded(abort)).value(), abort);
  EXPECT_EQ(DecodePing(Encoded(Ping{5})).value(), Ping{5});
  const Bytes payload = EncodedChunk();
  const auto chunk = DecodeChunk(payload).value();
  EXPECT_EQ(chunk.info, SampleInfo());
  EXPECT_EQ(chunk.frame.size(), 40U);
  EXPECT_EQ(chunk.frame.data(), payload.data() + kChunkInfoBytes);
}

TEST(Messages, EveryTruncationIsCorrupt) {
  for (const auto& row : Rows()) {
    const std::size_t first_valid = row.ends_anywhere ? kChunkInfoBytes + 1 : row.bytes.size();
    for (std::size_t size = 0; size < first_valid; ++size) {
      const auto read = row.decode_and_encode(std::span(row.bytes).first(size));
      ASSERT_FALSE(read.has_value()) << row.name << " " << size;
      EXPECT_EQ(read.error().code, ErrorCode::kCorruptData) << row.name << " " << size;
    }
  }
}

TEST(Messages, LeftoverBytesAreCorrupt) {
  for (const auto& row : Rows()) {
    if (row.ends_anywhere) continue;
    for (const std::size_t extra : {1U, 4U, 8U, 1000U}) {
      Bytes bytes = row.bytes;
      bytes.resize(bytes.size() + extra);
      const auto read = row.decode_and_encode(bytes);
      ASSERT_FALSE(read.has_value()) << row.name;
      EXPECT_EQ(read.error().code, ErrorCode::kCorruptData) << row.name;
    }
  }
}

// Without the checksum a flipped bit may give another valid message; what is accepted must be what
// the bytes say, and nothing larger than the input is allocated.
TEST(Messages, EveryBitFlipIsCorruptOrReadAsWritten) {
  for (const auto& row : Rows()) {
    for (std::size_t bit = 0; bit < 8 * row.bytes.size(); ++bit) {
      Bytes bytes = row.bytes;
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      testing::ResetLargestAllocation();
      const auto read = row.decode_and_encode(bytes);
      EXPECT_LT(testing::LargestAllocation(), 1024U) << row.name << " " << bit;
      if (!read) {
        EXPECT_EQ(read.error().code, ErrorCode::kCorruptData) << row.name << " " << bit;
      } else if (row.name != "abort") {  // its text is cleaned
        EXPECT_EQ(*read, bytes) << row.name << " " << bit;
      }
    }
  }
}

TEST(Messages, RequestsOutOfRangeAreNotSent) {
  const auto refused = [](const std::function<void(PrefillRequest&)>& change) {
    PrefillRequest request = SampleRequest();
    change(request);
    Bytes bytes;
    const auto status = Encode(request, bytes);
    return !status && status.error().code == ErrorCode::kInvalidArgument && bytes.empty();
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& r) {
    r.tokens.clear();
    r.skip_tokens = 0;
  }));
  EXPECT_TRUE(refused([](auto& r) { r.tokens.resize(kMaxRequestTokens + 1); }));
  EXPECT_TRUE(refused([](auto& r) { r.tokens[3] = -1; }));
  EXPECT_TRUE(refused([](auto& r) { r.profile.assign(kMaxProfileBytes + 1, 'x'); }));
  EXPECT_TRUE(refused([](auto& r) { r.profile = "a\nb"; }));
  EXPECT_TRUE(refused([](auto& r) { r.chunk_tokens = 0; }));
  EXPECT_TRUE(refused([](auto& r) { r.skip_tokens = 6; }));
  EXPECT_TRUE(refused([](auto& r) { r.prompt_tokens = 4; }));
  EXPECT_TRUE(refused([](auto& r) { r.prompt_tokens = kMaxTokens + 1; }));
}

TEST(Messages, LargestRequestFitsTheControlLimit) {
  PrefillRequest request;
  request.profile.assign(kMaxProfileBytes, 'p');
  request.tokens.assign(kMaxRequestTokens, 1);
  request.prompt_tokens = kMaxRequestTokens;
  const Bytes bytes = Encoded(request);
  EXPECT_LE(bytes.size(), kMaxControlBytes);
  EXPECT_EQ(DecodePrefillRequest(bytes).value(), request);
}

TEST(Messages, TimesMustBeDurations) {
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e12}) {
    Bytes bytes = EncodedChunk();
    std::memcpy(bytes.data() + 16, &bad, sizeof(bad));
    EXPECT_EQ(DecodeChunk(bytes).error().code, ErrorCode::kCorruptData) << bad;
    bytes = Encoded(PrefillStarted{1, 1, 0.0});
    std::memcpy(bytes.data() + 8, &bad, sizeof(bad));
    EXPECT_EQ(DecodePrefillStarted(bytes).error().code, ErrorCode::kCorruptData) << bad;
    Bytes out;
    EXPECT_FALSE(Encode(PrefillStarted{1, 1, bad}, out).has_value()) << bad;
  }
}

TEST(Messages, ChunkNeedsARangeAndAFrame) {
  Bytes payload;
  BeginChunk(payload);
  EXPECT_EQ(FinishChunk(SampleInfo(), payload).error().code, ErrorCode::kInvalidArgument);
  payload.push_back(std::byte{1});
  EXPECT_TRUE(FinishChunk(SampleInfo(), payload).has_value());
  auto info = SampleInfo();
  info.tokens = {5, 5};
  EXPECT_EQ(FinishChunk(info, payload).error().code, ErrorCode::kInvalidArgument);
}

TEST(Messages, AbortTextIsOneCleanLine) {
  const Abort shouting{ErrorCode::kInternal,
                       "line\nforged log entry\x1b[2J" + std::string(5000, 'x')};
  const auto read = DecodeAbort(Encoded(shouting)).value();
  EXPECT_EQ(read.message.size(), kMaxAbortBytes);
  EXPECT_EQ(read.message.substr(0, 21), "line?forged log entry");
  EXPECT_EQ(read.message.find('\x1b'), std::string::npos);
  Bytes hostile = Encoded(Abort{ErrorCode::kInternal, "abc"});
  hostile[7] = std::byte{'\n'};
  EXPECT_EQ(DecodeAbort(hostile).value().message, "a?c");
}

}  // namespace
}  // namespace kvserve
