// Two well-behaved ends: messages, deadlines, cancellation, back-pressure, pacing.
#include "net/connection.h"

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>

#include "net/testing/allocation_watch.h"
#include "net/testing/loopback.h"

namespace kvserve {
namespace {

using testing::Background;
using testing::ConnectionPair;
using testing::MakePair;
using testing::Patience;
using testing::RandomBytes;

constexpr std::size_t kMax = std::size_t{1} << 30;
constexpr std::size_t kBeyondAllBuffers = std::size_t{64} << 20;

TEST(Connection, CarriesMessagesBothWays) {
  ConnectionPair pair = MakePair();
  const auto payload = RandomBytes(100'000, 1);
  ASSERT_TRUE(pair.client->Send(MessageType::kChunk, 12, 34, payload, Patience()).has_value());
  ASSERT_TRUE(pair.client->Send(MessageType::kPing, 13, 0, {}, Patience()).has_value());
  Message message = pair.server->Receive(Patience(), kMax).value();
  EXPECT_EQ(message.type, MessageType::kChunk);
  EXPECT_EQ(message.transfer_id, 12U);
  EXPECT_EQ(message.index, 34U);
  EXPECT_EQ(message.payload, payload);
  EXPECT_EQ(message.wire_bytes, payload.size() + kMessageHeaderBytes);
  EXPECT_LE(message.backlog_bytes, message.wire_bytes);
  EXPECT_GT(message.receive_s, 0.0);
  ASSERT_TRUE(pair.server->Receive(Patience(), kMax, message).has_value());
  EXPECT_EQ(message.type, MessageType::kPing);
  EXPECT_TRUE(message.payload.empty());
  ASSERT_TRUE(pair.server->Send(MessageType::kPong, 13, 0, {}, Patience()).has_value());
  EXPECT_EQ(pair.client->Receive(Patience(), 0).value().type, MessageType::kPong);
  EXPECT_EQ(pair.client->stats().sent_bytes, pair.server->stats().received_bytes);
  EXPECT_GT(pair.server->stats().receive_s, 0.0);
}

TEST(Connection, PayloadBuffersAreReused) {
  ConnectionPair pair = MakePair();
  const auto payload = RandomBytes(200'000, 2);
  Message message;
  for (int i = 0; i < 10; ++i) {
    if (i == 2) testing::ResetLargestAllocation();  // two buffers take turns
    ASSERT_TRUE(pair.client->Send(MessageType::kChunk, 1, 0, payload, Patience()).has_value());
    ASSERT_TRUE(pair.server->Receive(Patience(), kMax, message).has_value());
    ASSERT_EQ(message.payload, payload);
  }
  EXPECT_LT(testing::LargestAllocation(), payload.size());
}

TEST(Connection, GrowsAcrossManySteps) {
  ConnectionPair pair = MakePair();
  const auto payload = RandomBytes(9'000'001, 3);
  const Background sender([&] {
    EXPECT_TRUE(pair.client->Send(MessageType::kChunk, 1, 0, payload, Patience()).has_value());
  });
  EXPECT_EQ(pair.server->Receive(Patience(), kMax).value().payload, payload);
}

TEST(Connection, ReceiveWithoutDataEndsAtTheDeadlineAndGoesOn) {
  ConnectionPair pair = MakePair();
  EXPECT_EQ(pair.server->Receive(After(0.01), kMax).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(pair.server->Receive(After(-1), kMax).error().code, ErrorCode::kDeadlineExceeded);
  ASSERT_TRUE(pair.client->Send(MessageType::kPing, 1, 0, {}, Patience()).has_value());
  EXPECT_TRUE(pair.server->Receive(Patience(), kMax).has_value());
}

TEST(Connection, UnreadPeerBlocksSendUntilTheDeadlineWithoutQueueing) {
  ConnectionPair pair = MakePair();
  const std::vector<std::byte> payload(kBeyondAllBuffers);
  testing::ResetLargestAllocation();
  const auto status = pair.client->Send(MessageType::kChunk, 1, 0, payload, After(0.1));
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_LT(testing::LargestAllocation(), 64U * 1024);
  EXPECT_LT(pair.client->stats().sent_bytes, payload.size());
  // Half a message is out: nothing can follow it.
  EXPECT_EQ(pair.client->Send(MessageType::kPing, 1, 0, {}, Patience()).error().code,
            ErrorCode::kUnavailable);
  EXPECT_EQ(pair.server->Receive(Patience(), kMax).error().code, ErrorCode::kUnavailable);
}

TEST(Connection, SlowReaderGetsEverything) {
  ConnectionPair pair = MakePair();
  const auto payload = RandomBytes(1 << 20, 4);
  const Background sender([&] {
    for (std::uint32_t i = 0; i < 24; ++i) {
      ASSERT_TRUE(pair.client->Send(MessageType::kChunk, 1, i, payload, Patience()).has_value());
    }
  });
  Message message;
  for (std::uint32_t i = 0; i < 24; ++i) {
    ASSERT_TRUE(pair.server->Receive(Patience(), kMax, message).has_value());
    ASSERT_EQ(message.index, i);
    ASSERT_EQ(message.payload, payload);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // it is slow
  }
}

// Both send far more than the buffers hold, and both read: nobody waits for the other to go first.
TEST(Connection, TwoWaysAtOnceDoNotBlockEachOther) {
  ConnectionPair pair = MakePair();
  const auto payload = RandomBytes(8 << 20, 5);
  const auto send = [&](Connection& from) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(from.Send(MessageType::kChunk, 1, i, payload, Patience()).has_value());
    }
  };
  const auto receive = [&](Connection& at) {
    Message message;
    for (std::uint32_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(at.Receive(Patience(), kMax, message).has_value());
      ASSERT_EQ(message.payload, payload);
    }
  };
  const Background a([&] { send(*pair.client); });
  const Background b([&] { send(*pair.server); });
  const Background c([&] { receive(*pair.client); });
  receive(*pair.server);
}

TEST(Connection, CancelWakesReceiverAndStaysInForce) {
  ConnectionPair pair = MakePair();
  const Background canceller([&] { pair.server->Cancel(); });
  EXPECT_EQ(pair.server->Receive(Patience(), kMax).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(pair.server->Receive(Patience(), kMax).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(pair.server->Send(MessageType::kPing, 1, 0, {}, Patience()).error().code,
            ErrorCode::kCancelled);
  EXPECT_EQ(pair.client->Receive(Patience(), kMax).error().code, ErrorCode::kUnavailable);
}

TEST(Connection, CancelWakesBlockedSender) {
  ConnectionPair pair = MakePair();
  const std::vector<std::byte> payload(kBeyondAllBuffers);
  std::atomic<bool> sending{false};
  Background sender([&] {
    sending = true;
    const auto status = pair.client->Send(MessageType::kChunk, 1, 0, payload, Patience());
    EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  });
  while (!sending) std::this_thread::yield();
  pair.client->Cancel();
  sender.Join();
}

TEST(Connection, CancelWakesPacedSender) {
  ConnectionPair pair = MakePair();
  pair.client->SetPacer(std::make_shared<Pacer>(1.0, 0));
  std::atomic<bool> sending{false};
  Background sender([&] {
    sending = true;
    EXPECT_EQ(pair.client->Send(MessageType::kPing, 1, 0, {}, Patience()).error().code,
              ErrorCode::kCancelled);
  });
  while (!sending) std::this_thread::yield();
  pair.client->Cancel();
  sender.Join();
}

TEST(Connection, PacedMessagesArriveWholeAndNotTooSoon) {
  ConnectionPair pair = MakePair();
  const double rate = 4e6;
  pair.client->SetPacer(std::make_shared<Pacer>(rate));
  const auto payload = RandomBytes(400'000, 6);
  const auto started = Clock::now();
  const Background sender([&] {
    EXPECT_TRUE(pair.client->Send(MessageType::kChunk, 1, 0, payload, Patience()).has_value());
  });
  const Message message = pair.server->Receive(Patience(), kMax).value();
  EXPECT_EQ(message.payload, payload);
  const double at_least = (static_cast<double>(payload.size()) - Pacer::kDefaultBurstBytes) / rate;
  EXPECT_GE(SecondsSince(started), at_least);
}

TEST(Connection, PacedSendThatCannotMakeItsDeadlineFailsUsable) {
  ConnectionPair pair = MakePair();
  pair.client->SetPacer(std::make_shared<Pacer>(1.0, 0));
  const auto status = pair.client->Send(MessageType::kPing, 1, 0, {}, After(0.01));
  EXPECT_EQ(status.error().code, ErrorCode::kDeadlineExceeded);
  pair.client->SetPacer(nullptr);
  EXPECT_TRUE(pair.client->Send(MessageType::kPing, 1, 0, {}, Patience()).has_value());
  EXPECT_TRUE(pair.server->Receive(Patience(), kMax).has_value());
}

TEST(Connection, EpochOfTheHandshakeIsRequired) {
  ConnectionPair pair = MakePair();
  pair.client->SetEpochs(11, 22);
  pair.server->SetEpochs(22, 11);
  ASSERT_TRUE(pair.client->Send(MessageType::kPing, 1, 0, {}, Patience()).has_value());
  EXPECT_EQ(pair.server->Receive(Patience(), kMax).value().epoch, 11U);
  pair.client->SetEpochs(12, 22);  // as if it were another start of the peer
  ASSERT_TRUE(pair.client->Send(MessageType::kPing, 1, 0, {}, Patience()).has_value());
  EXPECT_EQ(pair.server->Receive(Patience(), kMax).error().code, ErrorCode::kCorruptData);
}

TEST(Connection, FinishDeliversWhatWasSentLast) {
  ConnectionPair pair = MakePair();
  // Unread bytes at the server would turn its close into a reset that overtakes the message.
  ASSERT_TRUE(
      pair.client->Send(MessageType::kChunk, 1, 0, RandomBytes(5000, 7), Patience()).has_value());
  ASSERT_TRUE(
      pair.server->Send(MessageType::kAbort, 1, 0, RandomBytes(100, 8), Patience()).has_value());
  Background finisher([&] {
    pair.server->Finish(Patience());
    pair.server.reset();
  });
  EXPECT_EQ(pair.client->Receive(Patience(), kMax).value().type, MessageType::kAbort);
  EXPECT_EQ(pair.client->Receive(Patience(), kMax).error().code, ErrorCode::kUnavailable);
  pair.client.reset();
  finisher.Join();
}

double ThreadCpuSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(Connection, WaitingTakesNoProcessorTime) {
  ConnectionPair pair = MakePair();
  const double before = ThreadCpuSeconds();
  EXPECT_FALSE(pair.server->Receive(After(0.4), kMax).has_value());
  EXPECT_LT(ThreadCpuSeconds() - before, 0.2);
}

}  // namespace
}  // namespace kvserve
