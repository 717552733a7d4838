#include "runtime/peer_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/testing/fake_engine.h"
#include "runtime/prefill_node.h"

namespace kvserve {
namespace {

// A peer that goes while many requests connect is tried again as soon as if there had been one.
TEST(PeerPool, AttemptsThatFailSideBySideAreOneFailure) {
  const auto peer = Listener::Bind({}, AuthToken()).value();
  NodeMetrics metrics("decode");
  PeerPoolOptions options;
  options.address = peer->address();
  options.connect_s = 60.0;
  options.first_backoff_s = 0.05;
  options.max_backoff_s = 1e6;
  PeerPool pool(options, MakeHello(testing::FakeEngine({}).info(), NodeRole::kDecode).value(),
                metrics);
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

}  // namespace
}  // namespace kvserve
