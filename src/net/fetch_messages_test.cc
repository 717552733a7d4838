#include "net/fetch_messages.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "net/messages.h"
#include "net/testing/allocation_watch.h"
#include "net/testing/message_rows.h"

namespace kvserve {
namespace {

using testing::Encoded;
using testing::MakeRow;
using testing::MessageRow;

using Bytes = std::vector<std::byte>;

FetchOrder SampleOrder() {
  FetchOrder order{"cmpl-1234", {}, 1000, 128, 30000};
  for (std::size_t i = 0; i < order.key.bytes.size(); ++i) {
    order.key.bytes[i] = static_cast<std::uint8_t>(i);
  }
  return order;
}
FetchStarted SampleStarted() {
  return {256, 8, 16, "hadamard|uniform:k_levels=16,v_levels=8|rans"};
}

FetchStarted GuardedStarted() {
  return {256, 8, 16, "calibrated", "published"};
}

std::vector<MessageRow> Rows() {
  return {MakeRow("order", SampleOrder(), DecodeFetchOrder),
          MakeRow("started", SampleStarted(), DecodeFetchStarted),
          MakeRow("guarded", GuardedStarted(), DecodeFetchStarted),
          MakeRow("release", TicketRelease{"cmpl-1234"}, DecodeTicketRelease)};
}

TEST(FetchMessages, ValuesRoundTrip) {
  EXPECT_EQ(DecodeFetchOrder(Encoded(SampleOrder())).value(), SampleOrder());
  EXPECT_EQ(DecodeFetchStarted(Encoded(SampleStarted())).value(), SampleStarted());
  EXPECT_EQ(DecodeFetchStarted(Encoded(GuardedStarted())).value(), GuardedStarted());
  const TicketRelease release{std::string("\0\xFF\n any bytes", 13)};
  EXPECT_EQ(DecodeTicketRelease(Encoded(release)).value(), release);
}

TEST(FetchMessages, TruncationsAndLeftoversAreCorrupt) {
  FetchStarted unguarded = GuardedStarted();
  unguarded.fallback.clear();
  for (const MessageRow& row : Rows()) {
    const bool guarded = row.name == std::string("guarded");
    for (std::size_t size = 0; size < row.bytes.size() + 20; ++size) {
      if (size == row.bytes.size()) continue;
      if (guarded && size == Encoded(unguarded).size()) continue;  // a message as well
      Bytes bytes = row.bytes;
      bytes.resize(size);
      const auto read = row.decode_and_encode(bytes);
      ASSERT_FALSE(read.has_value()) << row.name << " " << size;
      EXPECT_EQ(read.error().code, ErrorCode::kCorruptData) << row.name << " " << size;
    }
  }
}

TEST(FetchMessages, EveryBitFlipIsCorruptOrReadAsWritten) {
  for (const MessageRow& row : Rows()) {
    for (std::size_t bit = 0; bit < 8 * row.bytes.size(); ++bit) {
      Bytes bytes = row.bytes;
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      testing::ResetLargestAllocation();
      const auto read = row.decode_and_encode(bytes);
      EXPECT_LT(testing::LargestAllocation(), 1024U) << row.name << " " << bit;
      if (!read) {
        EXPECT_EQ(read.error().code, ErrorCode::kCorruptData) << row.name << " " << bit;
      } else {
        EXPECT_EQ(*read, bytes) << row.name << " " << bit;
      }
    }
  }
}

template <typename T>
bool Refused(const T& message) {
  Bytes bytes;
  const Status status = Encode(message, bytes);
  return !status && status.error().code == ErrorCode::kInvalidArgument && bytes.empty();
}

TEST(FetchMessages, ValuesOutOfRangeAreNotSent) {
  const auto order = [](const std::function<void(FetchOrder&)>& change) {
    FetchOrder changed = SampleOrder();
    change(changed);
    return Refused(changed);
  };
  EXPECT_FALSE(order([](auto&) {}));
  EXPECT_TRUE(order([](auto& o) { o.ticket.clear(); }));
  EXPECT_TRUE(order([](auto& o) { o.ticket.assign(kMaxTicketBytes + 1, 't'); }));
  EXPECT_TRUE(order([](auto& o) { o.tokens = o.first_token; }));
  EXPECT_TRUE(order([](auto& o) { o.tokens = kMaxTokens + 1; }));
  const auto started = [](const std::function<void(FetchStarted&)>& change) {
    FetchStarted changed = SampleStarted();
    change(changed);
    return Refused(changed);
  };
  EXPECT_FALSE(started([](auto&) {}));
  EXPECT_TRUE(started([](auto& s) { s.frame_tokens = 0; }));
  EXPECT_TRUE(started([](auto& s) { s.frame_tokens = 65537; }));
  EXPECT_TRUE(started([](auto& s) { s.layers_per_frame = 0; }));
  EXPECT_TRUE(started([](auto& s) { s.profile.clear(); }));
  EXPECT_TRUE(started([](auto& s) { s.profile = "a\nb"; }));
  EXPECT_TRUE(started([](auto& s) { s.fallback = "a\nb"; }));
  EXPECT_TRUE(Refused(TicketRelease{}));
}

TEST(FetchMessages, LargestOrderFitsTheLimit) {
  FetchOrder order = SampleOrder();
  order.ticket.assign(kMaxTicketBytes, 't');
  EXPECT_LE(Encoded(order).size(), kMaxFetchBytes);
}

}  // namespace
}  // namespace kvserve
