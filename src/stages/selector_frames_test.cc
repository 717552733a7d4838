// Selectors in whole frames: what decoders see of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvserve/codec.h"
#include "pipeline/testing/chunk.h"
#include "pipeline/testing/query_sample.h"
#include "stages/profile_facts.h"
#include "stages/testing/frames.h"

namespace kvserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Decoded {
  KvBuffer kv;
  std::vector<std::uint8_t> dropped;
  bool partly = false;
  std::size_t bytes = 0;
};

Decoded RoundTrip(const std::string& text, const KvBuffer& chunk, std::uint32_t prompt_tokens = 0) {
  const testing::QuerySample queries(chunk.geometry(), chunk.tokens());
  const EncodeOptions options{.prompt_tokens = prompt_tokens, .queries = &queries.view()};
  std::vector<std::byte> frame;
  const auto status = EncodeFrame(chunk.view(), ParseProfile(text).value(), options, frame);
  EXPECT_TRUE(status) << text << ": " << (status ? "" : status.error().message);
  auto decoder = FrameDecoder::Create().value();
  Decoded found;
  EXPECT_TRUE(decoder.Decode(frame, {}, found.kv)) << text;
  found.dropped.assign(decoder.dropped().begin(), decoder.dropped().end());
  found.partly = decoder.partly_dropped();
  found.bytes = frame.size();
  return found;
}

KvBuffer Chunk(TokenRange tokens) {
  return testing::MakeChunk(
      testing::MakeGeometry(DType::kFloat16, {{2, 16, 16}, {1, 16, 8, 4}, {1, 24, 0}}), tokens);
}

TEST(SelectorFrames, DecodersListTheTokensThatAllPlanesDropped) {
  const KvBuffer chunk = Chunk({0, 8});
  const auto found = RoundTrip("window:sinks=2,recent=3,outside=0|mixed|rans", chunk);
  EXPECT_THAT(found.dropped, ElementsAre(0, 0, 1, 1, 1, 0, 0, 0));
  EXPECT_FALSE(found.partly);
  const auto kv = found.kv.view();
  for (const float value : testing::PlaneValues(kv.layers[0].k)) EXPECT_LT(std::abs(value), 1e4F);
  EXPECT_EQ(testing::PlaneValues(kv.layers[2].k)[2 * 24 + 5], 0.0F);
  // The prompt goes on, so that only sinks stay.
  EXPECT_THAT(RoundTrip("window:sinks=2,recent=3,outside=0|mixed|rans", chunk, 100).dropped,
              ElementsAre(0, 0, 1, 1, 1, 1, 1, 1));
}

TEST(SelectorFrames, OneChoiceForTheRequestIsNeverPartial) {
  const KvBuffer chunk = Chunk({0, 64});
  for (const char* selector : {"attention:recent=2,observed=3,keep=0.3,outside=0",
                               "buckets:recent=2,keep=0.3,outside=0"}) {
    const auto found = RoundTrip(std::string(selector) + "|mixed|rans", chunk);
    EXPECT_FALSE(found.partly) << selector;
    EXPECT_THAT(found.dropped, ::testing::Contains(1)) << selector;
    const auto layers = RoundTrip(std::string(selector) + ",scope=layer|mixed|rans", chunk);
    EXPECT_TRUE(layers.partly) << selector;
  }
}

TEST(SelectorFrames, ThinnedTokensCostLessAndAreAllThere) {
  const KvBuffer chunk = Chunk({0, 64});
  const auto plain = RoundTrip("mixed|rans", chunk);
  const auto thin = RoundTrip("window:sinks=1,recent=4|mixed|rans", chunk);
  EXPECT_LT(thin.bytes, plain.bytes);
  EXPECT_TRUE(thin.dropped.empty());
  EXPECT_FALSE(thin.partly);
}

TEST(SelectorFrames, QueriesAreAskedFor) {
  std::vector<std::byte> frame;
  const KvBuffer chunk = Chunk({0, 8});
  const auto status =
      EncodeFrame(chunk.view(), ParseProfile("attention|mixed|rans").value(), {}, frame);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().message, HasSubstr("'attention'"));
}

TEST(SelectorFrames, ReceiversThatNeedEveryTokenTakeThinningOnly) {
  const auto facts = [](const char* text) {
    return FactsOf(ParseProfile(text).value().stages, DType::kFloat16, ProfileOrigin::kCaller)
        .value();
  };
  for (const char* selector : {"window", "attention", "expected:keep=0.5", "buckets"}) {
    const std::string thins = std::string(selector) + "|mixed|rans";
    EXPECT_TRUE(CheckKeepsTokens(facts(thins.c_str()))) << selector;
    const bool options = std::string(selector).find(':') != std::string::npos;
    const std::string drops =
        std::string(selector) + (options ? "," : ":") + "outside=0|mixed|rans";
    const auto refused = CheckKeepsTokens(facts(drops.c_str()));
    ASSERT_FALSE(refused) << selector;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  }
}

TEST(SelectorFrames, OnlyBeforeQuantizersThatHonourWeights) {
  const auto refused = FrameEncoder::Create(ParseProfile("window|uniform|rans").value());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("'window'"));
}

}  // namespace
}  // namespace kvserve
