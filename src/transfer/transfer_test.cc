// Whole transfers between two engines' blocks, over sockets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/clock.h"
#include "base/half.h"
#include "library/testing/sample_artefact.h"
#include "transfer/testing/transfer_pair.h"

namespace kvserve::testing {
namespace {

constexpr const char* kLossy = "hadamard|uniform:k_levels=64,v_levels=64|rans";

TEST(Transfer, LosslessBetweenAllLayoutsAndBlockSizes) {
  constexpr PagedLayout kLayouts[] = {PagedLayout::kNhd, PagedLayout::kHnd, PagedLayout::kVllmCpu};
  for (const PagedLayout from : kLayouts) {
    for (const PagedLayout to : kLayouts) {
      for (const auto& [from_block, to_block] : {std::pair{128U, 16U}, {16U, 128U}, {16U, 7U}}) {
        TransferSetup setup = SmallSetup();
        setup.from_layout = from;
        setup.to_layout = to;
        setup.from_block = from_block;
        setup.to_block = to_block;
        TransferPair pair(std::move(setup));
        const auto request = pair.NewRequest("a", 203);
        pair.Begin(request, "lossless");
        pair.StageAll(request);
        pair.Fetch(pair.FetchOf(request));
        const FetchReport report = pair.Await("a");
        ASSERT_FALSE(report.error.has_value()) << report.error->message;
        EXPECT_TRUE(pair.Sent(request) == pair.Received(request));
        EXPECT_EQ(report.tokens, 203U);
        EXPECT_EQ(report.frames, 7U);
        EXPECT_EQ(report.profile, "lossless");
        EXPECT_EQ(report.raw_bytes, 203U * 3 * 2 * 2 * 16 * 2);
        const OfferReport offer = pair.AwaitOffer("a");
        EXPECT_EQ(offer.outcome, OfferOutcome::kDelivered);
        EXPECT_EQ(offer.raw_bytes, report.raw_bytes);
        EXPECT_EQ(offer.frames, 7U);
        EXPECT_EQ(offer.sent_bytes, offer.wire_bytes);
        EXPECT_TRUE(Eventually([&] { return pair.sender->staged_bytes() == 0; }));
        EXPECT_EQ(pair.sender->open_tickets(), 0U);
      }
    }
  }
}

float HalfAt(const std::vector<std::byte>& bytes, std::size_t index) {
  std::uint16_t half = 0;
  std::memcpy(&half, &bytes[2 * index], 2);
  return Float16ToFloat(half);
}

TEST(Transfer, LossyStaysNearAndTouchesOnlyItsBlocks) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  const auto other = pair.NewRequest("b", 100);
  const auto untouched = pair.Received(other);
  pair.Begin(request, kLossy);
  pair.StageAll(request);
  pair.Fetch(pair.FetchOf(request));
  const FetchReport report = pair.Await("a");
  ASSERT_FALSE(report.error.has_value()) << report.error->message;
  const auto sent = pair.Sent(request);
  const auto received = pair.Received(request);
  double error = 0.0;
  double energy = 0.0;
  for (std::size_t i = 0; i < sent.size() / 2; ++i) {
    error += std::pow(HalfAt(sent, i) - HalfAt(received, i), 2);
    energy += std::pow(HalfAt(sent, i), 2);
  }
  EXPECT_LT(error, 0.01 * energy);
  EXPECT_GT(error, 0.0);
  EXPECT_EQ(report.lossless_fallbacks, 0U);
  EXPECT_LT(report.wire_bytes, report.raw_bytes / 2);
  EXPECT_TRUE(pair.Received(other) == untouched);
}

// Frames weighed beside all earlier keys are those of one thread, however many encode.
TEST(Transfer, FramesOfAProfileThatLooksBackAreEncodedInTheirOrder) {
  std::vector<std::vector<std::byte>> received;
  for (const std::uint32_t threads : {1U, 4U}) {
    TransferSetup setup = SmallSetup();
    setup.sender.frame_tokens = 16;
    setup.sender.layers_per_frame = 2;
    setup.sender.threads = threads;
    setup.sender.calibration = SampleArtefact(setup.geometry);
    setup.receiver.calibration = setup.sender.calibration;
    TransferPair pair(std::move(setup));
    const auto request = pair.NewRequest("a", 200);
    pair.Begin(request, "expected:keys=seen,mean=offline,beta=1|mixed|rans");
    pair.StageAll(request);
    pair.Fetch(pair.FetchOf(request));
    const FetchReport report = pair.Await("a");
    ASSERT_FALSE(report.error.has_value()) << report.error->message;
    received.push_back(pair.Received(request));
  }
  EXPECT_TRUE(received[0] == received[1]);
}

// What the receiver has already may lie in the middle of a frame, and is not written.
TEST(Transfer, LeavesOutWhatTheReceiverHas) {
  for (const std::uint32_t first : {1U, 31U, 32U, 50U, 99U}) {
    TransferPair pair(SmallSetup());
    const auto request = pair.NewRequest("a", 100);
    const auto before = pair.Received(request);
    pair.Begin(request, "lossless");
    pair.StageAll(request);
    auto fetch = pair.FetchOf(request, first);
    if (first >= 16) fetch.tables[0][0] = kNoBlock;
    pair.Fetch(fetch);
    const FetchReport report = pair.Await("a");
    ASSERT_FALSE(report.error.has_value()) << report.error->message;
    EXPECT_EQ(report.tokens, 100 - first);
    EXPECT_EQ(report.frames, 4 - first / 32);
    EXPECT_TRUE(pair.Sent(request, first) == pair.Received(request, first));
    // Token 0 of layer 0's keys: the first 64 bytes, unless it was wanted.
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + 64, pair.Received(request).begin()));
  }
}

// As with chunked prefill: tokens in several steps, layers one by one, the receiver there first.
TEST(Transfer, FramesLeaveAsTheyBecomeReady) {
  for (const std::uint32_t layers_per_frame : {0U, 1U, 2U}) {
    TransferSetup setup = SmallSetup(5);
    setup.sender.layers_per_frame = layers_per_frame;
    TransferPair pair(std::move(setup));
    const auto request = pair.NewRequest("a", 150);
    pair.Begin(request, "lossless");
    pair.Fetch(pair.FetchOf(request));
    for (const TokenRange tokens : {TokenRange{0, 70}, TokenRange{70, 71}, TokenRange{71, 150}}) {
      for (std::uint32_t layer = 0; layer < 5; ++layer) {
        EXPECT_TRUE(pair.sender->Stage("a", request.from_tables, tokens, layer, 1));
      }
      pair.sender->WaitRead();
      if (tokens.end < 150) {
        EXPECT_EQ(pair.receiver->running(), 1U);
      }
    }
    const FetchReport report = pair.Await("a");
    ASSERT_FALSE(report.error.has_value()) << report.error->message;
    EXPECT_TRUE(pair.Sent(request) == pair.Received(request));
    const std::uint32_t groups = layers_per_frame == 0 ? 1 : layers_per_frame == 1 ? 5 : 3;
    EXPECT_EQ(report.frames, 5 * groups);
  }
}

// The engine may use its blocks again as soon as WaitRead returns.
TEST(Transfer, BlocksMayBeOverwrittenOnceRead) {
  TransferPair pair(SmallSetup());
  for (int i = 0; i < 20; ++i) {
    const auto request = pair.NewRequest("t" + std::to_string(i), 20);
    pair.source.FillNormal(static_cast<unsigned>(i));
    const auto wanted = pair.Sent(request);
    pair.Begin(request, "lossless");
    pair.StageAll(request);
    pair.sender->WaitRead();
    std::ranges::fill(pair.source.bytes(), std::byte{0x7E});
    pair.Fetch(pair.FetchOf(request));
    const FetchReport report = pair.Await(request.ticket);
    ASSERT_FALSE(report.error.has_value()) << report.error->message;
    EXPECT_TRUE(pair.Received(request) == wanted);
  }
}

TEST(Transfer, WindowLayersCarryOnlyTheirWindow) {
  TransferSetup setup = SmallSetup();
  setup.geometry.layers[1].window_tokens = 40;
  setup.sender.layers_per_frame = 1;
  TransferPair pair(std::move(setup));
  const auto request = pair.NewRequest("a", 200, 40);
  ASSERT_EQ(request.to_tables[1][9], kNoBlock);
  pair.Begin(request, "lossless");
  pair.StageAll(request);
  pair.Fetch(pair.FetchOf(request));
  const FetchReport report = pair.Await("a");
  ASSERT_FALSE(report.error.has_value()) << report.error->message;
  EXPECT_TRUE(pair.Sent(request) == pair.Received(request));
  EXPECT_EQ(report.frames, 7 + 2 + 7U);  // of the window layer those from token 160 on
}

TEST(Transfer, ValuesThatNoLossyStageTakesGoAsTheyAre) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  const std::uint16_t nan = 0x7E01;
  const auto places = Places(pair.source.cache(), request.from_tables, {40, 41}, 100);
  const std::ptrdiff_t offset = places[0] - pair.source.bytes().data();
  std::memcpy(&pair.source.bytes()[static_cast<std::size_t>(offset)], &nan, 2);
  pair.Begin(request, kLossy);
  pair.StageAll(request);
  pair.Fetch(pair.FetchOf(request));
  const FetchReport report = pair.Await("a");
  ASSERT_FALSE(report.error.has_value()) << report.error->message;
  EXPECT_EQ(report.lossless_fallbacks, 1U);
  EXPECT_EQ(pair.AwaitOffer("a").lossless_fallbacks, 1U);
}

// Caches of fp8 or of opaque bytes pass bit for bit.
TEST(Transfer, BytesOfAnyDTypeAreCarried) {
  for (const DType dtype : {DType::kFloat8E4M3FN, DType::kFloat8E5M2FNUZ, DType::kUint8,
                            DType::kBFloat16, DType::kFloat32}) {
    TransferSetup setup = SmallSetup();
    setup.geometry.dtype = dtype;
    TransferPair pair(std::move(setup));
    // Random bytes, of which some are NaN.
    for (std::size_t i = 0; i < pair.source.bytes().size(); ++i) {
      pair.source.bytes()[i] = static_cast<std::byte>(i * 2654435761U >> 13);
    }
    for (const char* profile : {"none", "lossless"}) {
      const auto request = pair.NewRequest(profile, 100);
      pair.Begin(request, profile);
      pair.StageAll(request);
      pair.Fetch(pair.FetchOf(request));
      const FetchReport report = pair.Await(profile);
      ASSERT_FALSE(report.error.has_value()) << report.error->message;
      EXPECT_TRUE(pair.Sent(request) == pair.Received(request)) << DTypeName(dtype);
      EXPECT_EQ(report.raw_bytes, 100U * 3 * 2 * 2 * 16 * DTypeBytes(dtype));
    }
    if (dtype != DType::kUint8) continue;
    const auto begun = pair.sender->Begin("lossy", {kLossy, SomeTokens(100)});
    ASSERT_FALSE(begun.has_value());  // at once, not with its first frame
    EXPECT_EQ(begun.error().code, ErrorCode::kInvalidArgument);
  }
}

// A frame of one token is smaller raw than with ranges and tables.
TEST(Transfer, FramesThatWouldGrowGoAsTheyAre) {
  TransferSetup setup = SmallSetup(1);
  setup.sender.frame_tokens = 1;
  TransferPair pair(std::move(setup));
  const auto request = pair.NewRequest("a", 3);
  pair.Begin(request, "hadamard|uniform:k_levels=64,v_levels=64|zstd");
  pair.StageAll(request);
  pair.Fetch(pair.FetchOf(request));
  const FetchReport report = pair.Await("a");
  ASSERT_FALSE(report.error.has_value()) << report.error->message;
  EXPECT_EQ(report.lossless_fallbacks, 3U);
  EXPECT_TRUE(pair.Sent(request) == pair.Received(request));
}

TEST(Transfer, SeveralReceiversTakeOneTicket) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  ASSERT_TRUE(pair.sender->Begin("a", {"lossless", request.tokens, "", 2}));
  pair.StageAll(request);
  for (const char* id : {"first", "second"}) {
    auto fetch = pair.FetchOf(request);
    fetch.id = id;
    pair.Fetch(fetch);
    EXPECT_FALSE(pair.Await(id).error.has_value());
  }
  EXPECT_EQ(pair.AwaitOffer("a").outcome, OfferOutcome::kDelivered);
}

double SecondsOf(TransferPair& pair, const std::vector<TransferPair::Request>& requests) {
  for (const auto& request : requests) {
    pair.Begin(request, "none");
    pair.StageAll(request);
  }
  pair.sender->WaitRead();
  const auto begun = Clock::now();
  for (const auto& request : requests) pair.Fetch(pair.FetchOf(request));
  for (const auto& request : requests) EXPECT_FALSE(pair.Await(request.ticket).error.has_value());
  return SecondsSince(begun);
}

// Over a link of 4 MB/s two hundred transfers at once take hardly longer than one of their size:
// none of them waits for another without the link being busy. The best of a few tries, as the
// machine may have other work.
TEST(Transfer, TwoHundredInParallelFillTheLinkAsOneLargeDoes) {
  constexpr std::uint32_t kTokens = 16;
  TransferSetup setup = SmallSetup(4);
  setup.geometry = Geometry(
      DType::kFloat16, std::vector<LayerGeometry>(4, {.kv_heads = 2, .k_dim = 32, .v_dim = 32}));
  setup.blocks = 2 * 200 * kTokens / 16 + 4;
  setup.sender.pace_bytes_per_s = 4e6;
  double share = 0.0;
  for (int i = 0; i < 5 && share < 0.8; ++i) {
    TransferPair pair(setup);
    std::vector<TransferPair::Request> many;
    for (int n = 0; n < 200; ++n) many.push_back(pair.NewRequest("t" + std::to_string(n), kTokens));
    const double one_s = SecondsOf(pair, {pair.NewRequest("one", 200 * kTokens)});
    share = one_s / SecondsOf(pair, many);
  }
  EXPECT_GE(share, 0.8);
}

TEST(Transfer, ManyAtOnceOverFewConnections) {
  TransferSetup setup = SmallSetup();
  setup.receiver.connections = 3;
  setup.receiver.threads = 2;
  setup.sender.threads = 2;
  setup.blocks = 400;
  TransferPair pair(std::move(setup));
  std::vector<TransferPair::Request> requests;
  for (int i = 0; i < 40; ++i) {
    requests.push_back(pair.NewRequest("t" + std::to_string(i), 100 + i));
    pair.Begin(requests.back(), i % 2 == 0 ? "lossless" : "none");
    pair.Fetch(pair.FetchOf(requests.back()));
  }
  for (const auto& request : requests) pair.StageAll(request);
  for (const auto& request : requests) {
    const FetchReport report = pair.Await(request.ticket);
    ASSERT_FALSE(report.error.has_value()) << report.error->message;
    EXPECT_TRUE(pair.Sent(request) == pair.Received(request));
  }
  EXPECT_EQ(pair.receiver->running(), 0U);
}

}  // namespace
}  // namespace kvserve::testing
