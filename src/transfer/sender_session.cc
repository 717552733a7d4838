#include "transfer/sender_session.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/try.h"
#include "net/fetch_messages.h"
#include "net/messages.h"

namespace kvserve {
namespace {

constexpr double kIdleSeconds = 600.0;     // a connection without a request is closed after this
constexpr double kControlSeconds = 10.0;   // for answers and aborts to a peer that may not read
constexpr double kPingSeconds = 1.0;       // between signs of life while nothing is ready
constexpr double kMaxFetchSeconds = 3600;  // of receivers that state no deadline
constexpr std::chrono::milliseconds kLookInterval{100};  // how soon a receiver's end is seen

class Session {
 public:
  Session(TicketTable& tickets, const Agreement& agreement, IdleConnections& idle,
          Connection& connection)
      : tickets_(tickets), agreement_(agreement), idle_(idle), connection_(connection) {}

  void Run() {
    Message message;
    while (idle_.Receive(connection_, After(kIdleSeconds), kMaxFetchBytes, message)) {
      if (!Take(message)) return;
    }
  }

 private:
  [[nodiscard]] Status Take(const Message& message) {
    switch (message.type) {
      case MessageType::kFetch: return Fetch(message);
      case MessageType::kRelease: return Release(message);
      default: return MakeError(ErrorCode::kMismatch, "a message that a sender does not take");
    }
  }

  // A fetch that fails is told so and leaves the connection in order; an error ends the session.
  [[nodiscard]] Status Fetch(const Message& message) {
    KVSERVE_ASSIGN(const FetchOrder order, DecodeFetchOrder(message.payload));
    transfer_id_ = message.transfer_id;
    sent_all_ = false;
    const double limit_s = order.deadline_ms == 0 ? kMaxFetchSeconds : order.deadline_ms / 1000.0;
    deadline_ = After(limit_s);
    const Status sent = Transfer(order);
    sent_all_ = sent.has_value();
    if (sent) return {};
    std::vector<std::byte> payload;
    KVSERVE_TRY(Encode(Abort{sent.error().code, sent.error().message}, payload));
    return connection_.Send(MessageType::kAbort, transfer_id_, 0, payload, After(kControlSeconds));
  }

  [[nodiscard]] Status Transfer(const FetchOrder& order) {
    KVSERVE_ASSIGN(const auto offer, tickets_.Find(order.ticket));
    KVSERVE_TRY(CheckOrder(order, *offer));
    const FrameGrid& grid = offer->grid();
    const std::uint32_t frames = grid.CountWanted(order.first_token);
    const FetchStarted started{grid.frame_tokens(), grid.layers_per_frame(), frames,
                               offer->offer().profile, offer->fallback().name};
    std::vector<std::byte> payload;
    KVSERVE_TRY(Encode(started, payload));
    KVSERVE_TRY(connection_.Send(MessageType::kFetchStarted, transfer_id_, 0, payload, deadline_));
    TransferEnd end;
    KVSERVE_TRY(SendFrames(*offer, order.first_token, end));
    end.tokens = order.tokens - order.first_token;
    end.profile = offer->offer().profile;
    payload.clear();
    KVSERVE_TRY(Encode(end, payload));
    return connection_.Send(MessageType::kTransferEnd, transfer_id_, 0, payload, deadline_);
  }

  [[nodiscard]] Status CheckOrder(const FetchOrder& order, const StagedOffer& offer) const {
    if (order.tokens != offer.grid().tokens()) {
      return MakeError(ErrorCode::kMismatch,
                       "the offer is of " + std::to_string(offer.grid().tokens()) +
                           " tokens, the receiver has " + std::to_string(order.tokens));
    }
    if (order.key != offer.key()) {
      return MakeError(ErrorCode::kMismatch,
                       "the receiver's tokens or context are not the offer's");
    }
    KVSERVE_TRY(CheckKnows(offer.profile().stages, offer.offer().profile));
    return CheckKnows(offer.fallback().stages, offer.fallback().name);
  }

  [[nodiscard]] Status CheckKnows(const std::vector<StageSpec>& stages,
                                  const std::string& profile) const {
    for (const StageSpec& stage : stages) {
      const StageVersion version{stage.id, stage.version};
      if (std::binary_search(agreement_.stages.begin(), agreement_.stages.end(), version)) continue;
      return MakeError(ErrorCode::kUnsupported, "the receiver lacks a stage of profile " + profile);
    }
    return {};
  }

  [[nodiscard]] Status SendFrames(StagedOffer& offer, std::uint32_t first_token, TransferEnd& end) {
    std::size_t position = 0;
    Clock::time_point next_ping = After(kPingSeconds);
    for (;;) {
      const auto now = Clock::now();
      if (now >= deadline_) {
        return MakeError(ErrorCode::kDeadlineExceeded, "the receiver's deadline has passed");
      }
      KVSERVE_ASSIGN(const auto next, offer.NextFrame(position, first_token,
                                                      std::min(now + kLookInterval, deadline_)));
      if (next.done) return {};
      if (next.frame == nullptr) {
        KVSERVE_TRY(ShowLife(next_ping));
        continue;
      }
      const ReadyFrame& frame = *next.frame;
      KVSERVE_TRY(connection_.Send(MessageType::kChunk, transfer_id_, next.index, frame.payload,
                                   deadline_));
      next_ping = After(kPingSeconds);
      offer.CountSent(frame.payload.size());
      ++end.chunks;
      end.fallbacks += frame.fell_back ? 1 : 0;
      end.raw_bytes += frame.raw_bytes;
      end.frame_bytes += frame.payload.size() - kChunkInfoBytes;
      end.encode_s += frame.encode_s;
    }
  }

  [[nodiscard]] Status ShowLife(Clock::time_point& next_ping) {
    if (connection_.PeerClosed()) {
      return MakeError(ErrorCode::kUnavailable, "the receiver has gone");
    }
    if (Clock::now() < next_ping) return {};
    next_ping = After(kPingSeconds);
    std::vector<std::byte> payload;
    KVSERVE_TRY(Encode(Ping{}, payload));
    return connection_.Send(MessageType::kPing, transfer_id_, 0, payload, deadline_);
  }

  [[nodiscard]] Status Release(const Message& message) {
    KVSERVE_ASSIGN(const TicketRelease release, DecodeTicketRelease(message.payload));
    const bool delivered = sent_all_ && message.transfer_id == transfer_id_;
    sent_all_ = false;
    tickets_.FinishReceiver(release.ticket, delivered);
    return {};
  }

  TicketTable& tickets_;
  const Agreement& agreement_;
  IdleConnections& idle_;
  Connection& connection_;
  std::uint64_t transfer_id_ = 0;
  bool sent_all_ = false;  // the last fetch waits for its confirmation
  Deadline deadline_;
};

}  // namespace

void RunSenderSession(TicketTable& tickets, const Agreement& agreement, IdleConnections& idle,
                      Connection& connection) {
  Session session(tickets, agreement, idle, connection);
  session.Run();
}

}  // namespace kvserve
