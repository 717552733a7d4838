#include "net/peer_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace kvserve {
namespace {

Hello ThisNode() {
  Hello hello;
  hello.epoch = 1;
  hello.geometry.layers.assign(1, {.kv_heads = 1, .k_dim = 8, .v_dim = 8});
  return hello;
}

// A peer that goes while many requests connect is tried again as soon as if there had been one.
TEST(PeerPool, AttemptsThatFailSideBySideAreOneFailure) {
  const auto peer = Listener::Bind({}, AuthToken()).value();
  PeerPoolOptions options;
  options.address = peer->address();
  options.connect_s = 60.0;
  options.first_backoff_s = 0.05;
  options.max_backoff_s = 1e6;
  PeerPool pool(options, ThisNode());
  constexpr int kRequests = 16;  // 0.05 s doubled so often is half an hour
  std::vector<std::thread> requests;
  for (int i = 0; i < kRequests; ++i) {
    requests.emplace_back([&] { EXPECT_FALSE(pool.Acquire(After(60.0), true)); });
  }
  std::vector<std::unique_ptr<Connection>> accepted;  // none gets an answer, then all end
  for (int i = 0; i < kRequests; ++i) accepted.push_back(peer->Accept(After(60.0)).value());
  accepted.clear();
  for (auto& request : requests) request.join();

  std::atomic<bool> done{false};
  std::thread next([&] {
    while (!done && !pool.Acquire(After(60.0), true)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_TRUE(peer->Accept(After(20.0)));
  done = true;
  next.join();
}

// A peer that accepts and says nothing holds an attempt in the handshake.
TEST(PeerPool, CancelledAttemptsEndAtOnceAndAreNoFailures) {
  const auto peer = Listener::Bind({}, AuthToken()).value();
  PeerPoolOptions options;
  options.address = peer->address();
  options.connect_s = 60.0;
  options.first_backoff_s = 1e6;
  options.max_backoff_s = 1e6;
  PeerPool pool(options, ThisNode());
  for (int i = 0; i < 3; ++i) {
    TransferCancel cancel;
    Status outcome;
    std::thread request([&] {
      auto lease = pool.Acquire(After(60.0), true, &cancel);
      if (!lease) outcome = tl::unexpected(lease.error());
    });
    const auto accepted = peer->Accept(After(60.0)).value();
    ASSERT_TRUE(accepted->Receive(After(60.0), 1024));  // its greeting: it waits for ours
    cancel.Cancel();
    request.join();
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kCancelled);
  }
}

}  // namespace
}  // namespace kvserve
