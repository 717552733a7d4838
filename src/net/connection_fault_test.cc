// Peers that vanish, lie or talk something else.
#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include <csignal>

#include "net/connection.h"
#include "net/testing/allocation_watch.h"
#include "net/testing/loopback.h"

namespace kvserve {
namespace {

using testing::Background;
using testing::ConnectionPair;
using testing::Junk;
using testing::MakeListener;
using testing::MakePair;
using testing::Patience;
using testing::RandomBytes;
using testing::RawPeer;
using testing::WireMessage;

constexpr std::size_t kMax = std::size_t{1} << 30;

// A raw client and the connection that our side has with it.
struct RawPair {
  std::unique_ptr<Listener> listener = MakeListener();
  RawPeer raw{listener->port()};
  std::unique_ptr<Connection> ours = std::move(listener->Accept(Patience())).value();
};

void WaitForPeerClosed(const Connection& connection) {
  const Deadline deadline = Patience();
  while (!connection.PeerClosed() && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(connection.PeerClosed());
}

TEST(ConnectionFault, JunkEndsTheConnectionWithoutAllocation) {
  for (const auto& junk : Junk()) {
    RawPair pair;
    pair.raw.Write(junk);
    pair.raw.FinishWriting();
    testing::ResetLargestAllocation();
    const auto received = pair.ours->Receive(Patience(), kMax);
    ASSERT_FALSE(received.has_value());
    EXPECT_EQ(received.error().code,
              junk.empty() ? ErrorCode::kUnavailable : ErrorCode::kCorruptData);
    EXPECT_LT(testing::LargestAllocation(), 4096U);
    EXPECT_EQ(pair.ours->Receive(Patience(), kMax).error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(pair.ours->Send(MessageType::kPing, 1, 0, {}, Patience()).error().code,
              ErrorCode::kUnavailable);
    EXPECT_TRUE(pair.raw.ReadAll().empty());  // ends: we have closed
  }
}

TEST(ConnectionFault, ClaimedLengthIsNotAllocated) {
  RawPair pair;
  const auto header = PackHeader({MessageType::kChunk, 1, 0, 0, kMax, 0});
  pair.raw.Write(header);
  pair.raw.Write(RandomBytes(100, 1));
  pair.raw.FinishWriting();
  testing::ResetLargestAllocation();
  EXPECT_EQ(pair.ours->Receive(Patience(), kMax).error().code, ErrorCode::kUnavailable);
  EXPECT_LE(testing::LargestAllocation(), std::size_t{1} << 20);
}

TEST(ConnectionFault, LengthAboveTheLimitIsCorrupt) {
  RawPair pair;
  pair.raw.Write(WireMessage(MessageType::kChunk, RandomBytes(101, 1)));
  const auto received = pair.ours->Receive(Patience(), 100);
  EXPECT_EQ(received.error().code, ErrorCode::kCorruptData);
  EXPECT_NE(received.error().message.find("101 bytes"), std::string::npos);
}

TEST(ConnectionFault, BitFlipsAnywhereAreCorrupt) {
  const auto good = WireMessage(MessageType::kChunk, RandomBytes(64, 2));
  for (std::size_t bit = 0; bit < 8 * good.size(); bit += 7) {
    RawPair pair;
    auto bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    pair.raw.Write(bytes);
    ASSERT_EQ(pair.ours->Receive(Patience(), kMax).error().code, ErrorCode::kCorruptData) << bit;
  }
}

TEST(ConnectionFault, EndInsideAMessageIsUnavailableAndSaysSo) {
  const auto good = WireMessage(MessageType::kChunk, RandomBytes(200, 3));
  for (const std::size_t size : {std::size_t{1}, kMessageHeaderBytes - 1, kMessageHeaderBytes,
                                 kMessageHeaderBytes + 1, good.size() - 1}) {
    RawPair pair;
    pair.raw.Write(std::span(good).first(size));
    pair.raw.Close();
    const auto received = pair.ours->Receive(Patience(), kMax);
    ASSERT_FALSE(received.has_value()) << size;
    EXPECT_EQ(received.error().code, ErrorCode::kUnavailable) << size;
    EXPECT_NE(received.error().message.find("inside a message"), std::string::npos) << size;
  }
}

TEST(ConnectionFault, ResetInsideAMessageIsUnavailable) {
  RawPair pair;
  const auto good = WireMessage(MessageType::kChunk, RandomBytes(2000, 4));
  pair.raw.Write(std::span(good).first(1000));
  EXPECT_EQ(pair.ours->Receive(After(0.05), kMax).error().code, ErrorCode::kDeadlineExceeded);
  pair.raw.Reset();
  EXPECT_EQ(pair.ours->Receive(Patience(), kMax).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(pair.ours->PeerClosed());
}

// A byte now and then: progress is kept over deadlines, and each Receive still ends at its own.
TEST(ConnectionFault, DripFeedIsResumed) {
  RawPair pair;
  const auto payload = RandomBytes(90, 5);
  const auto good = WireMessage(MessageType::kChunk, payload);
  for (std::size_t at = 0; at + 13 < good.size(); at += 13) {
    pair.raw.Write(std::span(good).subspan(at, 13));
    ASSERT_EQ(pair.ours->Receive(After(0.005), kMax).error().code, ErrorCode::kDeadlineExceeded);
  }
  pair.raw.Write(std::span(good).last((good.size() - 1) % 13 + 1));
  const auto received = pair.ours->Receive(Patience(), kMax);
  ASSERT_TRUE(received.has_value()) << received.error().message;
  EXPECT_EQ(received->payload, payload);
}

TEST(ConnectionFault, PeerGoneBeforeDuringAfter) {
  {
    ConnectionPair pair = MakePair();  // before: nothing was ever said
    pair.client.reset();
    WaitForPeerClosed(*pair.server);
    EXPECT_EQ(pair.server->Receive(Patience(), kMax).error().code, ErrorCode::kUnavailable);
  }
  {
    ConnectionPair pair = MakePair();  // during: the sender is blocked
    const std::vector<std::byte> payload(std::size_t{64} << 20);
    Background reader([&] {
      // Returns at the head of the message, whose 64 MiB no socket buffer holds.
      EXPECT_EQ(pair.server->Receive(Patience(), 16).error().code, ErrorCode::kCorruptData);
      pair.server.reset();
    });
    EXPECT_EQ(pair.client->Send(MessageType::kChunk, 1, 0, payload, Patience()).error().code,
              ErrorCode::kUnavailable);
    reader.Join();
  }
  {
    ConnectionPair pair = MakePair();  // after: what was sent can still be read
    ASSERT_TRUE(pair.client->Send(MessageType::kPing, 1, 0, {}, Patience()).has_value());
    pair.client.reset();
    WaitForPeerClosed(*pair.server);
    EXPECT_TRUE(pair.server->Receive(Patience(), kMax).has_value());
    EXPECT_EQ(pair.server->Receive(Patience(), kMax).error().code, ErrorCode::kUnavailable);
  }
}

TEST(ConnectionFault, WritingToAClosedPeerRaisesNoSignal) {
  std::signal(SIGPIPE, SIG_DFL);  // would end the test program
  ConnectionPair pair = MakePair();
  pair.server.reset();
  const std::vector<std::byte> payload(100'000);
  const Deadline deadline = Patience();
  Status status;
  while (status && Clock::now() < deadline) {
    status = pair.client->Send(MessageType::kChunk, 1, 0, payload, deadline);
  }
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
}

// The peer's host is gone: no FIN, no RST, until we send something.
TEST(ConnectionFault, HalfOpenPeerEndsAtTheDeadlineThenAtTheFirstSend) {
  RawPair pair;
  const int repair = 1;
  if (::setsockopt(pair.raw.descriptor(), IPPROTO_TCP, TCP_REPAIR, &repair, sizeof(repair)) != 0) {
    GTEST_SKIP() << "closing a socket silently needs CAP_NET_ADMIN";
  }
  pair.raw.Close();
  EXPECT_FALSE(pair.ours->PeerClosed());
  EXPECT_EQ(pair.ours->Receive(After(0.05), kMax).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(pair.ours->Send(MessageType::kPing, 1, 0, {}, Patience()).has_value());
  EXPECT_EQ(pair.ours->Receive(Patience(), kMax).error().code, ErrorCode::kUnavailable);
}

TEST(ConnectionFault, PeerClosedIsFalseWhileItLives) {
  ConnectionPair pair = MakePair();
  EXPECT_FALSE(pair.server->PeerClosed());
  ASSERT_TRUE(pair.client->Send(MessageType::kPing, 1, 0, {}, Patience()).has_value());
  EXPECT_TRUE(pair.server->Receive(Patience(), kMax).has_value());
  EXPECT_FALSE(pair.server->PeerClosed());
  EXPECT_FALSE(pair.client->PeerClosed());
}

}  // namespace
}  // namespace kvserve
