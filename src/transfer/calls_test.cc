// Arguments of senders and receivers, and what strangers may say to them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "net/testing/loopback.h"
#include "transfer/testing/transfer_pair.h"

namespace kvserve::testing {
namespace {

bool Invalid(const Status& status) {
  return !status && status.error().code == ErrorCode::kInvalidArgument;
}

TEST(TransferCalls, OptionsAreChecked) {
  const TransferSetup setup = SmallSetup();
  const SampleCache cache(setup.geometry, PagedLayout::kNhd, 16, 4);
  const auto sender = [&](const std::function<void(SenderOptions&)>& change) {
    SenderOptions options;
    change(options);
    const auto started = KvSender::Start(cache.cache(), options);
    return !started && started.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_FALSE(sender([](auto&) {}));
  EXPECT_TRUE(sender([](auto& o) { o.frame_tokens = 0; }));
  EXPECT_TRUE(sender([](auto& o) { o.frame_tokens = 65537; }));
  EXPECT_TRUE(sender([](auto& o) { o.threads = 0; }));
  EXPECT_TRUE(sender([](auto& o) { o.lease_s = 0.0; }));
  EXPECT_TRUE(sender([](auto& o) { o.listen = "nowhere"; }));
  EXPECT_TRUE(sender([](auto& o) { o.listen = "0.0.0.0:0"; }));  // beyond loopback, no token
  EXPECT_TRUE(sender([](auto& o) { o.token_file = "/no such file"; }));
  const auto receiver = [&](const std::function<void(ReceiverOptions&)>& change) {
    ReceiverOptions options;
    change(options);
    const auto started = KvReceiver::Start(cache.cache(), options);
    return !started && started.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_FALSE(receiver([](auto&) {}));
  EXPECT_TRUE(receiver([](auto& o) { o.threads = 65; }));
  EXPECT_TRUE(receiver([](auto& o) { o.connections = 0; }));
  EXPECT_TRUE(receiver([](auto& o) { o.stall_s = -1.0; }));
  PagedCache broken = cache.cache();
  broken.layers.pop_back();
  EXPECT_FALSE(KvSender::Start(broken, {}));
  EXPECT_FALSE(KvReceiver::Start(broken, {}));
}

// Paged caches hold a block for every token.
TEST(TransferCalls, ProfilesThatDropTokensAreRefused) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  const auto begun = pair.sender->Begin("a", {"window:outside=0|mixed|rans", request.tokens});
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(begun.error().message.find("'window'"), std::string::npos) << begun.error().message;
  EXPECT_NE(begun.error().message.find("outside above 0"), std::string::npos);
  EXPECT_TRUE(pair.sender->Begin("a", {"window:outside=0.25|mixed|rans", request.tokens}));
}

TEST(TransferCalls, ProfilesThatNeedQueriesAreRefused) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  const auto begun = pair.sender->Begin("a", {"attention|mixed|rans", request.tokens});
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(begun.error().message.find("'attention'"), std::string::npos) << begun.error().message;
}

TEST(TransferCalls, OffersAndStagesAreChecked) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  KvSender& sender = *pair.sender;
  EXPECT_TRUE(Invalid(sender.Begin("", {"none", request.tokens})));
  EXPECT_TRUE(Invalid(sender.Begin(std::string(257, 't'), {"none", request.tokens})));
  EXPECT_TRUE(Invalid(sender.Begin("b", {"none", {}})));
  EXPECT_TRUE(Invalid(sender.Begin("b", {"no such profile", request.tokens})));
  EXPECT_TRUE(Invalid(sender.Begin("b", {"none", request.tokens, "", 0})));
  EXPECT_EQ(sender.open_tickets(), 0U);
  pair.Begin(request, "none");
  EXPECT_TRUE(Invalid(sender.Begin("a", {"none", request.tokens})));

  const auto stage = [&](const char* ticket, TokenRange tokens, std::uint32_t first,
                         std::uint32_t layers) {
    return sender.Stage(ticket, request.from_tables, tokens, first, layers);
  };
  EXPECT_TRUE(Invalid(stage("b", {0, 10}, 0, 3)));
  EXPECT_TRUE(Invalid(stage("a", {0, 0}, 0, 3)));
  EXPECT_TRUE(Invalid(stage("a", {10, 20}, 0, 3)));  // not the first
  EXPECT_TRUE(Invalid(stage("a", {0, 101}, 0, 3)));  // beyond the offer
  EXPECT_TRUE(Invalid(stage("a", {0, 10}, 0, 0)));
  EXPECT_TRUE(Invalid(stage("a", {0, 10}, 2, 2)));
  EXPECT_TRUE(Invalid(stage("a", {0, 10}, UINT32_MAX, 2)));
  EXPECT_TRUE(Invalid(sender.Stage("a", {}, {0, 10}, 0, 3)));
  EXPECT_TRUE(stage("a", {0, 10}, 0, 1));
  EXPECT_TRUE(Invalid(stage("a", {0, 10}, 0, 1)));   // twice
  EXPECT_TRUE(Invalid(stage("a", {10, 20}, 0, 2)));  // layer 1 lacks the first ten
  EXPECT_TRUE(stage("a", {0, 10}, 1, 2));
  EXPECT_TRUE(stage("a", {10, 100}, 0, 3));
  EXPECT_TRUE(Invalid(stage("a", {100, 101}, 0, 3)));
  pair.Fetch(pair.FetchOf(request));
  EXPECT_FALSE(pair.Await("a").error.has_value());
  EXPECT_TRUE(Eventually([&] { return sender.open_tickets() == 0; }));
  EXPECT_TRUE(Invalid(sender.Begin("a", {"none", request.tokens})));  // used before
}

TEST(TransferCalls, FetchesAreChecked) {
  TransferPair pair(SmallSetup());
  const auto request = pair.NewRequest("a", 100);
  const auto refused = [&](const std::function<void(FetchRequest&)>& change) {
    FetchRequest fetch = pair.FetchOf(request);
    change(fetch);
    return Invalid(pair.receiver->Fetch(fetch));
  };
  EXPECT_TRUE(refused([](auto& f) { f.address = "x"; }));
  EXPECT_TRUE(refused([](auto& f) { f.ticket = ""; }));
  EXPECT_TRUE(refused([](auto& f) { f.wanted.begin = 100; }));
  EXPECT_TRUE(refused([](auto& f) { f.wanted.end = 99; }));
  EXPECT_TRUE(refused([](auto& f) { f.tokens.push_back(1); }));
  EXPECT_TRUE(refused([](auto& f) { f.tables.clear(); }));
  EXPECT_TRUE(refused([](auto& f) { f.tables[0][3] = kNoBlock; }));
  EXPECT_TRUE(refused([](auto& f) { f.tables[0][3] = 64; }));
  EXPECT_TRUE(refused([](auto& f) { f.tables[0].pop_back(); }));
  EXPECT_TRUE(refused([](auto& f) { f.deadline_s = 0.0; }));
  EXPECT_EQ(pair.receiver->running(), 0U);
  pair.Begin(request, "none");
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto&) {}));  // its id is in use
}

TEST(TransferCalls, TokensMustBeTheSame) {
  const std::string folder = ::testing::TempDir() + "kvserve-transfer-tokens-";
  const auto file = [&](const std::string& text) {
    std::string path = folder + text;
    std::filesystem::remove(path);
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    return path;
  };
  TransferSetup setup = SmallSetup();
  setup.sender.token_file = file("one");
  for (const auto& [receiver, agrees] :
       {std::pair{file("one"), true}, {file("two"), false}, {std::string(), false}}) {
    setup.receiver.token_file = receiver;
    TransferPair pair(setup);
    const auto request = pair.NewRequest("a", 100);
    pair.Begin(request, "none");
    pair.StageAll(request);
    pair.Fetch(pair.FetchOf(request));
    const FetchReport report = pair.Await("a");
    EXPECT_EQ(!report.error.has_value(), agrees);
    if (report.error) {
      EXPECT_EQ(report.error->code, ErrorCode::kPermissionDenied);
    }
  }
  for (const char* text : {"one", "two"}) std::filesystem::remove(folder + text);
}

// Strangers cost their own connection and nobody else's.
TEST(TransferCalls, JunkIsShutOutAndTransfersGoOn) {
  TransferPair pair(SmallSetup());
  const auto address = ParseHostPort(pair.sender->address()).value();
  for (const auto& junk : Junk()) {
    RawPeer stranger(address.port);
    ASSERT_TRUE(stranger.connected());
    stranger.Write(junk);
    stranger.FinishWriting();
    (void)stranger.ReadAll();
  }
  const auto request = pair.NewRequest("a", 100);
  pair.Begin(request, "none");
  pair.StageAll(request);
  pair.Fetch(pair.FetchOf(request));
  EXPECT_FALSE(pair.Await("a").error.has_value());
}

}  // namespace
}  // namespace kvserve::testing
