#include "transfer/sender_session.h"

#include <gtest/gtest.h>

#include "net/fetch_messages.h"
#include "net/testing/loopback.h"

namespace kvserve::testing {
namespace {

// Receivers keep connections for their next fetch. A sender that stops does not wait for it: were
// the session not ended, this test would hang for its ten minutes.
TEST(SenderSession, EndsAtOnceWhenTheSenderStopsWhileNothingIsAsked) {
  for (const bool stopped_before : {false, true}) {
    ConnectionPair pair = MakePair();
    TicketTable tickets;
    IdleConnections idle;
    if (stopped_before) idle.Stop();
    Background session([&] { RunSenderSession(tickets, Agreement(), idle, *pair.server); });
    if (!stopped_before) {
      std::vector<std::byte> order;
      ASSERT_TRUE(Encode(FetchOrder{.ticket = "nobody", .tokens = 1}, order));
      ASSERT_TRUE(pair.client->Send(MessageType::kFetch, 1, 0, order, Patience()));
      EXPECT_EQ(pair.client->Receive(Patience(), kMaxFetchBytes)->type, MessageType::kAbort);
      idle.Stop();
    }
    session.Join();
  }
}

}  // namespace
}  // namespace kvserve::testing
