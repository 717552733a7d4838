// Faults of the prefill node and of its peers.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "net/messages.h"
#include "pair.h"
#include "transfer/node_hello.h"

namespace kvserve::testing {
namespace {

const std::function<bool()> kAlive = [] { return true; };
const OnToken kAnyToken = [](std::optional<Token>, std::string_view) { return true; };

void ExpectRecomputed(const GenerateReport& report, const GenerateRequest& request,
                      const std::string& reason) {
  EXPECT_EQ(report.source, KvSource::kRecomputed);
  EXPECT_EQ(report.reason.rfind("recompute: " + reason, 0), 0U) << report.reason;
  EXPECT_EQ(report.tokens, LocalTokens(request));
}

// The engine fails in the middle of a prompt: the peer is told, at once and why.
TEST(PeerFault, AnAbortedPrefillIsReportedAndNothingPartialIsUsed) {
  for (const std::uint32_t failing_position : {0U, 32U, 112U}) {
    PairOptions options;
    options.prefill_engine.on_prefill = [=](std::span<const Token>, std::uint32_t first) -> Status {
      if (first != failing_position) return {};
      return MakeError(ErrorCode::kInternal, "no more memory for tensors");
    };
    Pair pair(options);
    const auto request = Greedy(Prompt(129));
    const auto report = MustGenerate(*pair.decode, request);
    ExpectRecomputed(report, request, "internal: prefill node: no more memory for tensors");
    EXPECT_EQ(pair.decode_worker.engine->open_sequences(), 0);
    EXPECT_TRUE(Eventually([&] { return pair.prefill_worker.engine->open_sequences() == 0; }));
  }
}

// Holds the engine at one chunk of a prompt until it is let go.
class ChunkGate {
 public:
  // -1: holds nothing.
  void HoldAt(int chunk) {
    const std::lock_guard lock(mutex_);
    chunk_ = chunk;
    reached_ = released_ = false;
  }
  void Pass(std::uint32_t first_position) {
    std::unique_lock lock(mutex_);
    if (static_cast<int>(first_position / 16) != chunk_) return;
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return released_; });
  }
  [[nodiscard]] bool WaitUntilReached() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return reached_; });
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int chunk_ = -1;
  bool reached_ = false;
  bool released_ = false;
};

// Stops the prefill node while its engine is held, so that the transfer is certainly incomplete.
void KillInTransfer(Pair& pair, ChunkGate& gate) {
  EXPECT_TRUE(gate.WaitUntilReached());
  const HostPort address = pair.prefill->address();
  auto stopping = std::async(std::launch::async, [&] { pair.StopPrefill(); });
  EXPECT_TRUE(Eventually([&] { return !Connect(address, After(1.0)); }));
  gate.Release();
  stopping.get();
}

// Killed before, during and after a transfer, again and again: nothing is left behind.
TEST(PeerFault, AHundredDeathsLeaveNoBufferAndNoSequence) {
  PairOptions options;
  ChunkGate gate;
  options.prefill_engine.on_prefill = [&](std::span<const Token>, std::uint32_t first) -> Status {
    gate.Pass(first);
    return {};
  };
  Pair pair(options);
  const auto request = Greedy(Prompt(97), 2);
  const auto expected = LocalTokens(request);
  for (int round = 0; round < 100; ++round) {
    const int moment = round % 5;  // 0: before, 1-3: in the middle, 4: after
    const bool middle = moment >= 1 && moment <= 3;
    gate.HoldAt(middle ? 2 * moment - 2 : -1);  // never the last of six
    if (moment == 0) pair.StopPrefill();
    auto running =
        std::async(std::launch::async, [&] { return MustGenerate(*pair.decode, request); });
    if (middle) KillInTransfer(pair, gate);
    const GenerateReport report = running.get();
    EXPECT_EQ(report.tokens, expected) << round;
    EXPECT_EQ(report.source, moment == 4 ? KvSource::kTransferred : KvSource::kRecomputed)
        << round << " " << report.reason;
    pair.StopPrefill();
    pair.StartPrefill();
  }
  EXPECT_EQ(pair.decode->metrics().fallbacks(), 80);
  EXPECT_EQ(pair.decode->buffers_in_use(), 0);
  EXPECT_EQ(pair.decode_worker.engine->open_sequences(), 0);
  EXPECT_EQ(pair.prefill_worker.engine->open_sequences(), 0);
  EXPECT_EQ(pair.prefill->buffers_in_use(), 0);
}

TEST(PeerFault, AnotherModelIsRefusedInWords) {
  PairOptions options;
  options.decode_engine.model_seed = 2;
  Pair pair(options);
  const auto report = MustGenerate(*pair.decode, Greedy(Prompt(50)));
  EXPECT_EQ(report.source, KvSource::kRecomputed);
  EXPECT_EQ(report.reason.rfind("recompute: mismatch", 0), 0U) << report.reason;
  EXPECT_NE(report.reason.find("model"), std::string::npos) << report.reason;
}

TEST(PeerFault, ReachingThePeerTellsWhatIsWrongAndLeavesNoBackOff) {
  PairOptions options;
  options.decode.first_backoff_s = 60.0;
  Pair pair(options);
  EXPECT_TRUE(pair.decode->ReachPeer());
  pair.StopPrefill();
  const Status gone = pair.decode->ReachPeer();
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::kUnavailable);
  pair.StartPrefill();
  EXPECT_TRUE(pair.decode->ReachPeer());
  EXPECT_EQ(MustGenerate(*pair.decode, Greedy(Prompt(30))).source, KvSource::kTransferred);
}

TEST(PeerFault, AnotherCacheTypeIsRefusedInWords) {
  PairOptions options;
  options.decode_engine.dtype = DType::kBFloat16;
  Pair pair(options);
  const auto report = MustGenerate(*pair.decode, Greedy(Prompt(50)));
  EXPECT_EQ(report.reason.rfind("recompute: mismatch", 0), 0U) << report.reason;
}

TEST(PeerFault, AChunkSizeAboveThePrefillNodesIsRefused) {
  PairOptions options;
  options.decode.chunk_tokens = 32;
  Pair pair(options);
  const auto request = Greedy(Prompt(50));
  const auto report = MustGenerate(*pair.decode, request);
  EXPECT_EQ(report.reason.rfind("recompute: invalid_argument", 0), 0U) << report.reason;
  EXPECT_EQ(report.tokens, LocalTokens(request, 32));
}

// A raw client of the prefill node.
std::unique_ptr<Connection> Dial(const Pair& pair) {
  auto connection = Connect(pair.prefill->address(), After(5.0));
  EXPECT_TRUE(connection);
  const ModelInfo& model = pair.decode_worker.worker->info();
  const auto hello = MakeHello(model.fingerprint, model.geometry, NodeRole::kDecode);
  EXPECT_TRUE(ClientHandshake(**connection, *hello, AuthToken(), After(5.0)));
  return std::move(*connection);
}

void Ask(Connection& connection, std::size_t tokens) {
  PrefillRequest request;
  request.profile = "none";
  request.tokens = Prompt(tokens);
  request.prompt_tokens = static_cast<std::uint32_t>(tokens);
  request.chunk_tokens = 16;
  std::vector<std::byte> payload;
  ASSERT_TRUE(Encode(request, payload));
  ASSERT_TRUE(connection.Send(MessageType::kPrefillRequest, 1, 0, payload, After(5.0)));
}

// Peers that ask and do not read hold their own requests only, in bounded memory.
TEST(PeerFault, SlowReadersHoldBackOnlyThemselves) {
  PairOptions options;
  options.prefill_engine.context_tokens = 1 << 16;
  options.prefill_engine.sequences = options.prefill.sequences = 4;
  Pair pair(options);
  std::vector<std::unique_ptr<Connection>> slow;
  for (int i = 0; i < 2; ++i) {
    slow.push_back(Dial(pair));
    Ask(*slow.back(), 60000);  // beyond what the kernel's buffers take
  }
  EXPECT_TRUE(Eventually([&] { return pair.prefill_worker.engine->prefilled_tokens() > 1000; }));
  const auto request = Greedy(Prompt(200));
  const auto report = MustGenerate(*pair.decode, request);
  EXPECT_EQ(report.source, KvSource::kTransferred) << report.reason;
  EXPECT_EQ(report.tokens, LocalTokens(request));
  EXPECT_LE(pair.prefill->buffers_in_use(), 2 * 3);
  slow.clear();
  EXPECT_TRUE(Eventually([&] {
    return pair.prefill_worker.engine->open_sequences() == 0 && pair.prefill->buffers_in_use() == 0;
  }));
}

TEST(PeerFault, APeerThatHasGoneStopsItsPrefill) {
  PairOptions options;
  options.prefill_engine.context_tokens = 1 << 16;
  Pair pair(options);
  for (const bool politely : {false, true}) {
    auto peer = Dial(pair);
    const int before = pair.prefill_worker.engine->prefilled_tokens();
    Ask(*peer, 60000);
    EXPECT_TRUE(
        Eventually([&] { return pair.prefill_worker.engine->prefilled_tokens() > before; }));
    if (politely) {
      std::vector<std::byte> payload;
      ASSERT_TRUE(Encode(Abort{ErrorCode::kCancelled, "enough"}, payload));
      ASSERT_TRUE(peer->Send(MessageType::kAbort, 1, 0, payload, After(5.0)));
    } else {
      peer.reset();
    }
    EXPECT_TRUE(Eventually([&] { return pair.prefill_worker.engine->open_sequences() == 0; }));
    EXPECT_LT(pair.prefill_worker.engine->prefilled_tokens() - before, 60000);
  }
}

// One that does not read holds up the sender; that must not keep the connection of a peer which
// breaks the protocol.
TEST(PeerFault, APeerThatDoesNotReadAndMisbehavesIsCutOff) {
  PairOptions options;
  options.prefill_engine.context_tokens = 1 << 16;
  Pair pair(options);
  const auto peer = Dial(pair);
  Ask(*peer, 60000);  // beyond what the kernel's buffers take
  int seen = -1;
  int unchanged = 0;
  EXPECT_TRUE(Eventually([&] {
    const int before = std::exchange(seen, pair.prefill_worker.engine->prefilled_tokens());
    unchanged = seen > 0 && seen == before ? unchanged + 1 : 0;
    return unchanged > 200;  // the sender is blocked, and with it all before it
  }));
  EXPECT_LT(seen, 60000);
  ASSERT_TRUE(peer->Send(MessageType::kPong, 1, 0, {}, After(5.0)));
  EXPECT_TRUE(Eventually([&] { return pair.prefill->connections() == 0; }));
}

TEST(PeerFault, FiftyConnectionsOfJunkDoNotDisturb) {
  Pair pair;
  const HostPort address = pair.prefill->address();
  const std::string junk[] = {"GET / HTTP/1.1\r\n\r\n", std::string(100000, '\xFF'),
                              std::string("\x80\x04\x95", 3) + std::string(4000, 'p'),
                              std::string(1, '\0'), ""};
  std::vector<std::thread> threads;
  for (int i = 0; i < 50; ++i) {
    threads.emplace_back([&, i] {
      auto connection = Connect(address, After(5.0));
      if (connection) {
        const std::string& bytes = junk[static_cast<std::size_t>(i) % std::size(junk)];
        // Whatever becomes of it: the node may close before it has read all.
        (void)(*connection)
            ->Send(static_cast<MessageType>(200), 0, 0, std::as_bytes(std::span(bytes)),
                   After(1.0));
        if (i % 3 != 0) (*connection)->Finish(After(0.2));
      }
    });
  }
  for (unsigned i = 0; i < 10; ++i) {
    const auto request = Greedy(Prompt(100, i));
    EXPECT_EQ(MustGenerate(*pair.decode, request).tokens, LocalTokens(request));
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(MustGenerate(*pair.decode, Greedy(Prompt(100))).source, KvSource::kTransferred);
}

TEST(PeerFault, ConnectionsBeyondTheLimitAreRefusedAndCounted) {
  PairOptions options;
  options.prefill.max_connections = 3;
  Pair pair(options);
  std::vector<std::unique_ptr<Connection>> held;
  for (int i = 0; i < 3; ++i) held.push_back(Dial(pair));
  const auto request = Greedy(Prompt(40));
  ExpectRecomputed(MustGenerate(*pair.decode, request), request, "unavailable");
  EXPECT_NE(pair.prefill->metrics().Expose().find("outcome=\"refused\""), std::string::npos);
  held.clear();
  EXPECT_TRUE(Eventually([&] {
    return MustGenerate(*pair.decode, Greedy(Prompt(40), 1)).source == KvSource::kTransferred;
  }));
}

TEST(PeerFault, TheDeadlineEndsARequestWhateverHoldsIt) {
  PairOptions options;
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  options.prefill_engine.on_prefill = [released](std::span<const Token>, std::uint32_t) -> Status {
    released.wait();
    return {};
  };
  options.decode.deadline_s = 0.3;
  Pair pair(options);
  const auto report = pair.decode->Generate(Greedy(Prompt(50)), kAlive, kAnyToken);
  release.set_value();  // before anything that may leave the test: the engine has to end
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(pair.decode_worker.engine->open_sequences(), 0);
}

TEST(PeerFault, AClientThatHasGoneCancelsEveryStage) {
  Pair pair;
  std::atomic<bool> alive{true};
  int tokens = 0;
  const auto report = pair.decode->Generate(
      Greedy(Prompt(50), 500), [&] { return alive.load(); },
      [&](std::optional<Token>, std::string_view) {
        if (++tokens == 5) alive = false;
        return true;
      });
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(tokens, 5);
  EXPECT_EQ(pair.decode_worker.engine->open_sequences(), 0);
  // Not a failure of the prefill node: nothing is computed for nobody.
  EXPECT_FALSE(pair.decode->Generate(
      Greedy(Prompt(50)), [] { return false; }, kAnyToken));
  EXPECT_EQ(pair.decode->metrics().fallbacks(), 0);
  EXPECT_EQ(pair.decode_worker.engine->prefilled_tokens(), 0);
}

TEST(PeerFault, TooManyRequestsAreRefusedAtOnce) {
  PairOptions options;
  options.decode_engine.sequences = options.decode.sequences = 1;
  options.decode.max_waiting = 1;
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  options.decode_engine.on_decode = [released](std::uint32_t) -> Status {
    released.wait();
    return {};
  };
  Pair pair(options);
  auto running = std::async(std::launch::async, [&] {
    return pair.decode->Generate(Greedy({65, 66}), kAlive, kAnyToken);
  });
  EXPECT_TRUE(Eventually([&] { return pair.decode_worker.engine->open_sequences() == 1; }));
  auto waiting = std::async(std::launch::async, [&] {
    return pair.decode->Generate(Greedy({65, 66}), kAlive, kAnyToken);
  });
  EXPECT_TRUE(Eventually([&] {
    return pair.decode->metrics().Expose().find("kvserve_queue_depth{role=\"decode\"} 1") !=
           std::string::npos;
  }));
  const auto refused = pair.decode->Generate(Greedy({65, 66}), kAlive, kAnyToken);
  release.set_value();
  EXPECT_TRUE(running.get());
  EXPECT_TRUE(waiting.get());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace kvserve::testing
