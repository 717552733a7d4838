#include "transfer/fetch_transfer.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "kvserve/codec.h"
#include "net/messages.h"

namespace kvserve {
namespace {

constexpr double kSendSeconds = 10.0;
constexpr double kLookSeconds = 0.2;           // how soon a stall is seen
constexpr double kMinimumRateSeconds = 0.002;  // shorter receptions say nothing about the link
constexpr std::size_t kMaxAnswerBytes = 8192;  // of all messages but chunks

class Transfer {
 public:
  Transfer(const FetchTransfer& resources, const std::shared_ptr<RunningFetch>& fetch,
           Connection& connection, std::uint64_t transfer_id, bool& started)
      : resources_(resources),
        fetch_(fetch),
        connection_(connection),
        transfer_id_(transfer_id),
        started_(started) {}

  Status Run() {
    KVSERVE_TRY(SendOrder());
    KVSERVE_TRY(ReceiveAll());
    KVSERVE_TRY(fetch_->AwaitJobs());
    if (rate_s_ >= kMinimumRateSeconds) report().link_bytes_per_s = rate_bytes_ / rate_s_;
    Confirm();
    return {};
  }
  // Every message of this transfer has been read, and nothing was left half sent.
  [[nodiscard]] bool in_order() const { return in_order_; }

 private:
  [[nodiscard]] FetchReport& report() { return fetch_->report(); }

  [[nodiscard]] Status SendOrder() {
    const FetchRequest& request = fetch_->request();
    FetchOrder order;
    order.ticket = request.ticket;
    order.key = PrefixKey(fetch_->seed(), request.tokens);
    order.tokens = fetch_->total_tokens();
    order.first_token = request.wanted.begin;
    const double left_s = std::chrono::duration<double>(fetch_->deadline() - Clock::now()).count();
    order.deadline_ms = static_cast<std::uint32_t>(std::clamp(left_s * 1000.0, 1.0, 4e9));
    std::vector<std::byte> payload;
    KVSERVE_TRY(Encode(order, payload));
    return connection_.Send(MessageType::kFetch, transfer_id_, 0, payload,
                            std::min(fetch_->deadline(), After(kSendSeconds)));
  }

  [[nodiscard]] Status ReceiveAll() {
    Message message = resources_.decoders.Spare();
    for (;;) {
      KVSERVE_TRY(Receive(message));
      if (message.transfer_id != transfer_id_) continue;  // late data of an older transfer
      started_ = true;
      report().wire_s += message.receive_s;
      switch (message.type) {
        case MessageType::kPing: continue;
        case MessageType::kFetchStarted: KVSERVE_TRY(TakeStart(message)); continue;
        case MessageType::kChunk: KVSERVE_TRY(TakeChunk(message)); continue;
        case MessageType::kTransferEnd: return TakeEnd(message);
        case MessageType::kAbort: return TakeAbort(message);
        default: return MakeError(ErrorCode::kCorruptData, "unexpected message type");
      }
    }
  }

  // The next message; a sender of which nothing comes for stall_s has failed.
  [[nodiscard]] Status Receive(Message& message) {
    std::uint64_t bytes_before = connection_.stats().received_bytes;
    Clock::time_point last_progress = Clock::now();
    for (;;) {
      KVSERVE_TRY(fetch_->Check());
      const Deadline look = std::min(fetch_->deadline(), After(kLookSeconds));
      Status received = connection_.Receive(look, max_payload_, message);
      if (received) return {};
      if (received.error().code != ErrorCode::kDeadlineExceeded) {
        KVSERVE_TRY(fetch_->Check());  // which cancels the connection, if it comes to that
        return received;
      }
      const std::uint64_t bytes = connection_.stats().received_bytes;
      if (bytes != bytes_before) last_progress = Clock::now();
      bytes_before = bytes;
      if (SecondsSince(last_progress) > resources_.stall_s) {
        return MakeError(
            ErrorCode::kDeadlineExceeded,
            "nothing came from the sender for " + std::to_string(resources_.stall_s) + " s");
      }
    }
  }

  [[nodiscard]] Status TakeStart(const Message& message) {
    if (announced_) return MakeError(ErrorCode::kCorruptData, "the fetch started twice");
    announced_ = true;
    KVSERVE_ASSIGN(const FetchStarted started, DecodeFetchStarted(message.payload));
    KVSERVE_TRY(fetch_->Start(started));
    const FrameGrid& grid = fetch_->grid();
    std::uint64_t largest = 0;
    for (std::uint32_t group = 0; group < grid.groups(); ++group) {
      std::uint64_t bytes = 0;
      const FrameGrid::Cell cell = grid.At(group);
      for (std::uint32_t i = cell.first_layer; i < cell.first_layer + cell.layers; ++i) {
        bytes += LayerBytes(grid.geometry().layers[i], grid.geometry().dtype, cell.tokens.size());
      }
      largest = std::max(largest, bytes);
    }
    max_payload_ = static_cast<std::size_t>(2 * largest + (1 << 20));
    return {};
  }

  [[nodiscard]] Status TakeChunk(Message& message) {
    if (!announced_) return MakeError(ErrorCode::kCorruptData, "a frame before the start");
    KVSERVE_TRY(fetch_->Expect(message.index));
    KVSERVE_ASSIGN(const Chunk chunk, DecodeChunk(message.payload));
    ++report().frames;
    report().raw_bytes += chunk.info.raw_bytes;
    report().wire_bytes += chunk.frame.size();
    if (message.wire_bytes > message.backlog_bytes) {
      rate_bytes_ += static_cast<double>(message.wire_bytes - message.backlog_bytes);
      rate_s_ += message.receive_s;
    }
    KVSERVE_TRY(fetch_->OpenJob(resources_.max_jobs));
    resources_.decoders.Push(fetch_, std::move(message));
    message = resources_.decoders.Spare();
    return {};
  }

  [[nodiscard]] Status TakeEnd(const Message& message) {
    in_order_ = true;
    KVSERVE_ASSIGN(const TransferEnd end, DecodeTransferEnd(message.payload));
    const std::uint32_t wanted = fetch_->request().wanted.size();
    if (!announced_ || end.chunks != report().frames || end.tokens != wanted ||
        end.frame_bytes != report().wire_bytes || end.raw_bytes != report().raw_bytes ||
        report().frames != fetch_->grid().CountWanted(fetch_->request().wanted.begin)) {
      return MakeError(ErrorCode::kMismatch,
                       "the transfer ended after " + std::to_string(report().frames) +
                           " frames, before all had come, or its totals differ");
    }
    report().lossless_fallbacks = end.fallbacks;
    report().tokens = wanted;
    return {};
  }

  [[nodiscard]] Status TakeAbort(const Message& message) {
    in_order_ = true;
    KVSERVE_ASSIGN(const Abort abort, DecodeAbort(message.payload));
    return MakeError(abort.code, "sender: " + abort.message);
  }

  // The sender's lease does the rest if this does not arrive.
  void Confirm() {
    std::vector<std::byte> payload;
    in_order_ = Encode(TicketRelease{fetch_->request().ticket}, payload).has_value() &&
                connection_
                    .Send(MessageType::kRelease, transfer_id_, 0, payload,
                          std::min(fetch_->deadline(), After(kSendSeconds)))
                    .has_value();
  }

  const FetchTransfer& resources_;
  const std::shared_ptr<RunningFetch>& fetch_;
  Connection& connection_;
  const std::uint64_t transfer_id_;
  bool& started_;
  bool announced_ = false;
  bool in_order_ = false;
  std::size_t max_payload_ = kMaxAnswerBytes;
  double rate_bytes_ = 0.0;
  double rate_s_ = 0.0;
};

}  // namespace

Status RunFetchTransfer(const FetchTransfer& resources, const std::shared_ptr<RunningFetch>& fetch,
                        Connection& connection, std::uint64_t transfer_id, bool& started,
                        bool& in_order) {
  const TransferCancel::Watch watch(fetch->cancel(), connection);
  Transfer transfer(resources, fetch, connection, transfer_id, started);
  Status status = transfer.Run();
  in_order = transfer.in_order();
  return status;
}

}  // namespace kvserve
