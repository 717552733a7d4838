// Tickets and fetches that end before they are delivered: each with its reason, none with data.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "transfer/testing/fake_sender.h"

namespace kvserve::testing {
namespace {

void ExpectFetchError(const FetchReport& report, ErrorCode code, const std::string& words) {
  ASSERT_TRUE(report.error.has_value());
  EXPECT_EQ(report.error->code, code) << report.error->message;
  EXPECT_NE(report.error->message.find(words), std::string::npos) << report.error->message;
  EXPECT_EQ(report.tokens, 0U);
}

// A lease that runs out while a receiver reads is an error there, whatever the engine writes into
// its blocks afterwards.
TEST(TransferFault, ALeaseThatExpiresWhileReadIsAnErrorAndNeverData) {
  TransferSetup setup = SmallSetup();
  setup.sender.lease_s = 0.1;
  TransferPair pair(std::move(setup));
  const auto request = pair.NewRequest("a", 100);
  pair.Begin(request, "lossless");
  pair.Stage(request, {0, 64});
  pair.Fetch(pair.FetchOf(request));
  ExpectFetchError(pair.Await("a"), ErrorCode::kDeadlineExceeded, "sender: the ticket's lease");
  EXPECT_EQ(pair.AwaitOffer("a").outcome, OfferOutcome::kExpired);
  EXPECT_EQ(pair.sender->open_tickets(), 0U);
  EXPECT_TRUE(Eventually([&] { return pair.sender->staged_bytes() == 0; }));
  pair.Stage(request, {64, 100});  // late, and ignored
  pair.Fetch(pair.FetchOf(request));
  ExpectFetchError(pair.Await("a"), ErrorCode::kDeadlineExceeded, "sender: the ticket's lease");
}

TEST(TransferFault, AWithdrawnTicketTellsItsReason) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  pair.Begin(request, "lossless");
  pair.Stage(request, {0, 64});
  pair.Fetch(pair.FetchOf(request));
  pair.sender->Withdraw("a", {ErrorCode::kCancelled, "the request was aborted"});
  ExpectFetchError(pair.Await("a"), ErrorCode::kCancelled, "sender: the request was aborted");
  const OfferReport offer = pair.AwaitOffer("a");
  EXPECT_EQ(offer.outcome, OfferOutcome::kWithdrawn);
  EXPECT_EQ(offer.error.message, "the request was aborted");
  pair.sender->Withdraw("never heard of", {});
  pair.Fetch(pair.FetchOf(pair.NewRequest("b", 10)));
  ExpectFetchError(pair.Await("b"), ErrorCode::kUnavailable, "not known here");
}

TEST(TransferFault, AReleasedTicketIsDropped) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  pair.Begin(request, "lossless");
  pair.StageAll(request);
  pair.receiver->Release(pair.sender->address(), "a");
  EXPECT_EQ(pair.AwaitOffer("a").outcome, OfferOutcome::kWithdrawn);
  EXPECT_TRUE(Eventually([&] { return pair.sender->staged_bytes() == 0; }));
}

TEST(TransferFault, OtherTokensOrContextAreNoMatch) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  ASSERT_TRUE(pair.sender->Begin("a", {"lossless", request.tokens, "adapter 1", 100}));
  pair.StageAll(request);
  for (const char* context : {"", "adapter 2"}) {
    auto fetch = pair.FetchOf(request);
    fetch.context = context;
    pair.Fetch(fetch);
    ExpectFetchError(pair.Await("a"), ErrorCode::kMismatch, "tokens or context");
  }
  auto fetch = pair.FetchOf(request);
  fetch.context = "adapter 1";
  pair.Fetch(fetch);
  EXPECT_FALSE(pair.Await("a").error.has_value());
  fetch.tokens[99] += 1;
  pair.Fetch(fetch);
  ExpectFetchError(pair.Await("a"), ErrorCode::kMismatch, "tokens or context");
  fetch.tokens.pop_back();
  fetch.wanted.end = 99;
  pair.Fetch(fetch);
  ExpectFetchError(pair.Await("a"), ErrorCode::kMismatch, "100 tokens, the receiver has 99");
}

TEST(TransferFault, EnginesOfOtherShapesAreRefusedAtTheHandshake) {
  TransferPair pair(SmallSetup(46));
  TransferSetup deeper = SmallSetup(47);
  const SampleCache cache(deeper.geometry, PagedLayout::kNhd, 16, 64);
  pair.receiver = KvReceiver::Start(cache.cache(), {}).value();
  const auto request = pair.NewRequest("a", 100);
  pair.Begin(request, "lossless");
  pair.StageAll(request);
  pair.Fetch(pair.FetchOf(request));
  ExpectFetchError(pair.Await("a"), ErrorCode::kMismatch, "layers 47 here, 46 there");
}

// ---- cancelling --------------------------------------------------------------------------------

TEST(TransferFault, CancelEndsAFetchWhereverItIs) {
  TransferSetup setup = SmallSetup();
  setup.receiver.connections = 1;
  TransferPair pair(std::move(setup));
  const auto reading = pair.NewRequest("reading", 100);
  const auto queued = pair.NewRequest("queued", 100);
  pair.Begin(reading, "lossless");
  pair.Begin(queued, "lossless");
  pair.Stage(reading, {0, 64});
  pair.StageAll(queued);
  for (const auto* request : {&reading, &queued}) {
    auto fetch = pair.FetchOf(*request);
    fetch.deadline_s = 1e5;
    pair.Fetch(fetch);
  }
  pair.receiver->Cancel("queued");
  ExpectFetchError(pair.Await("queued"), ErrorCode::kCancelled, "cancelled");
  EXPECT_EQ(pair.receiver->running(), 1U);
  pair.receiver->Cancel("reading");
  ExpectFetchError(pair.Await("reading"), ErrorCode::kCancelled, "cancelled");
  pair.receiver->Cancel("reading");
  EXPECT_EQ(pair.receiver->running(), 0U);
  // The sender hears of both.
  EXPECT_EQ(pair.AwaitOffer("queued").outcome, OfferOutcome::kWithdrawn);
  EXPECT_EQ(pair.AwaitOffer("reading").outcome, OfferOutcome::kWithdrawn);
}

TEST(TransferFault, CancelEndsAFetchInTheHandshake) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  const auto silent = Listener::Bind({}, AuthToken()).value();
  auto fetch = pair.FetchOf(request);
  fetch.address = silent->address().text();
  pair.Fetch(fetch);
  const auto accepted = silent->Accept(After(60.0)).value();
  ASSERT_TRUE(accepted->Receive(After(60.0), 1024));
  pair.receiver->Cancel("a");
  ExpectFetchError(pair.Await("a"), ErrorCode::kCancelled, "cancelled");
}

TEST(TransferFault, DeadlinesEndWhatIsQueuedAndWhatIsRead) {
  TransferSetup setup = SmallSetup();
  setup.receiver.connections = 1;
  TransferPair pair(std::move(setup));
  const auto reading = pair.NewRequest("reading", 100);
  const auto queued = pair.NewRequest("queued", 100);
  pair.Begin(reading, "lossless");
  auto fetch = pair.FetchOf(reading);
  fetch.deadline_s = 0.3;
  pair.Fetch(fetch);
  fetch = pair.FetchOf(queued);
  fetch.deadline_s = 0.05;
  pair.Fetch(fetch);
  ExpectFetchError(pair.Await("queued"), ErrorCode::kDeadlineExceeded, "deadline");
  ExpectFetchError(pair.Await("reading"), ErrorCode::kDeadlineExceeded, "deadline");
}

TEST(TransferFault, BothEndsMayGoWhileTheyAreUsed) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  pair.Begin(request, "lossless");
  pair.Stage(request, {0, 64});
  pair.Fetch(pair.FetchOf(request));
  pair.receiver = KvReceiver::Start(pair.target.cache(), {}).value();  // the first one has gone
  const auto second = pair.NewRequest("b", 100);
  pair.Begin(second, "lossless");
  pair.Stage(second, {0, 64});
  pair.Fetch(pair.FetchOf(second));
  pair.sender.reset();
  const FetchReport report = pair.Await("b");
  ASSERT_TRUE(report.error.has_value());  // kCancelled, or the listener was gone already
}

// ---- senders that fail -------------------------------------------------------------------------

TEST(TransferFault, ASenderThatDiesBeforeItsDataLeavesNothingBehind) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  const HonestFrames frames = MakeFrames(pair, request, "lossless");
  int transfers = 0;
  const FakeSender sender(pair, [&](Connection& connection, std::uint64_t id) {
    SendPayload(connection, MessageType::kFetchStarted, id, frames.started);
    if (++transfers % 2 == 0) {
      (void)connection.Send(MessageType::kChunk, id, 0, frames.payloads[0], After(60.0));
    }
  });
  const auto before = pair.target.bytes();
  for (int i = 0; i < 100; ++i) {
    auto fetch = pair.FetchOf(request);
    fetch.address = sender.address();
    fetch.deadline_s = 1e5;
    pair.Fetch(fetch);
    ExpectFetchError(pair.Await("a"), ErrorCode::kUnavailable, "closed the connection");
    EXPECT_EQ(pair.receiver->running(), 0U);
  }
  EXPECT_EQ(transfers, 100);
  pair.Begin(request, "lossless");
  pair.StageAll(request);
  pair.Fetch(pair.FetchOf(request));
  EXPECT_FALSE(pair.Await("a").error.has_value());
}

TEST(TransferFault, AFrozenSenderIsGivenUpAfterAStall) {
  TransferSetup setup = SmallSetup();
  setup.receiver.stall_s = 0.05;
  TransferPair pair(std::move(setup));
  const auto request = pair.NewRequest("a", 100);
  const FakeSender sender(pair,
                          [](Connection& connection, std::uint64_t) { AwaitEnd(connection); });
  auto fetch = pair.FetchOf(request);
  fetch.address = sender.address();
  pair.Fetch(fetch);
  ExpectFetchError(pair.Await("a"), ErrorCode::kDeadlineExceeded, "nothing came from the sender");
}

TEST(TransferFault, NobodyListeningIsUnavailable) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  auto fetch = pair.FetchOf(request);
  fetch.address = Listener::Bind({}, AuthToken()).value()->address().text();  // closed again
  pair.Fetch(fetch);
  ExpectFetchError(pair.Await("a"), ErrorCode::kUnavailable, "");
}

// ---- memory ------------------------------------------------------------------------------------

TEST(TransferFault, ACapacityOfOneAndAHalfRequestsLastsForAThousand) {
  TransferSetup setup = SmallSetup(1);
  const std::uint64_t raw_bytes = std::uint64_t{64} * 2 * 2 * 16 * 2;
  setup.sender.max_staged_bytes = raw_bytes * 3 / 2;
  TransferPair pair(std::move(setup));
  auto request = pair.NewRequest("", 64);
  for (int i = 0; i < 1000; ++i) {
    request.ticket = "t" + std::to_string(i);
    pair.Begin(request, i % 2 == 0 ? "none" : "lossless");
    pair.StageAll(request);
    EXPECT_LE(pair.sender->staged_bytes(), raw_bytes * 3 / 2);
    pair.Fetch(pair.FetchOf(request));
    const FetchReport report = pair.Await(request.ticket);
    ASSERT_FALSE(report.error.has_value()) << i << ": " << report.error->message;
    ASSERT_EQ(pair.AwaitOffer(request.ticket).outcome, OfferOutcome::kDelivered);
    ASSERT_TRUE(Eventually([&] { return pair.sender->staged_bytes() == 0; }));
  }
}

TEST(TransferFault, ATicketBeyondTheBoundFailsAndTheOthersGoOn) {
  TransferSetup setup = SmallSetup(1);
  setup.sender.max_staged_bytes = std::uint64_t{64} * 2 * 2 * 16 * 2 * 3 / 2;
  TransferPair pair(std::move(setup));
  const auto first = pair.NewRequest("first", 64);
  const auto second = pair.NewRequest("second", 64);
  for (const auto* request : {&first, &second}) {
    pair.Begin(*request, "none");
    pair.StageAll(*request);
    pair.Fetch(pair.FetchOf(*request));
  }
  ExpectFetchError(pair.Await("second"), ErrorCode::kResourceExhausted, "would pass the limit");
  EXPECT_EQ(pair.AwaitOffer("second").outcome, OfferOutcome::kFailed);
  EXPECT_FALSE(pair.Await("first").error.has_value());
}

// ---- two engines that both send and receive ----------------------------------------------------

TEST(TransferFault, PeersThatSendToEachOtherWithFullBuffersDoNotLock) {
  TransferSetup setup = SmallSetup(4);
  setup.geometry = Geometry(
      DType::kFloat16, std::vector<LayerGeometry>(4, {.kv_heads = 4, .k_dim = 64, .v_dim = 64}));
  setup.blocks = 200;
  setup.sender.frame_tokens = 512;  // 2 MiB each: more than sockets hold
  setup.receiver.connections = 4;
  TransferPair there(setup);
  TransferPair back(setup);
  std::vector<TransferPair::Request> requests;
  for (int i = 0; i < 3; ++i) {
    for (TransferPair* pair : {&there, &back}) {
      requests.push_back(pair->NewRequest("t" + std::to_string(i), 1024));
      pair->Begin(requests.back(), "none");
      pair->StageAll(requests.back());
      pair->Fetch(pair->FetchOf(requests.back()));
    }
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    TransferPair& pair = i % 2 == 0 ? there : back;
    EXPECT_FALSE(pair.Await(requests[i].ticket).error.has_value());
    EXPECT_TRUE(pair.Sent(requests[i]) == pair.Received(requests[i]));
  }
}

}  // namespace
}  // namespace kvserve::testing
