#include "runtime/prefill_session.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "base/try.h"
#include "net/messages.h"

namespace kvserve {
namespace {

constexpr double kPollSeconds = 0.1;  // how soon a stop is seen
// The peer may send its next request as soon as it has the end of the last one, a moment before the
// thread of that one has returned.
constexpr std::chrono::milliseconds kTurnaround{1000};

// The request that the connection is working on, in a thread of its own.
struct ActiveRequest {
  ActiveRequest(std::uint64_t transfer, PrefillRequest body, Deadline deadline)
      : transfer_id(transfer), request(std::move(body)), scope(deadline) {}

  const std::uint64_t transfer_id;
  const PrefillRequest request;
  RequestScope scope;
  std::future<void> done;

  [[nodiscard]] bool FinishesWithin(std::chrono::milliseconds wait) const {
    return done.wait_for(wait) == std::future_status::ready;
  }
};

class Session {
 public:
  Session(const PrefillResources& resources, const PrefillSessionOptions& options,
          Connection& connection)
      : resources_(resources), options_(options), connection_(connection) {}

  ~Session() { EndActive({ErrorCode::kUnavailable, "the decode node has gone"}); }

  void Run() {
    Message message;
    Clock::time_point idle_since = Clock::now();
    while (!resources_.stopping) {
      if (active_) {
        idle_since = Clock::now();
        if (active_->FinishesWithin({})) EndActive({});
      }
      const Status received = connection_.Receive(After(kPollSeconds), kMaxControlBytes, message);
      const bool waiting = !received && received.error().code == ErrorCode::kDeadlineExceeded &&
                           SecondsSince(idle_since) <= options_.idle_s;
      if (waiting || (received && Handle(message))) continue;
      // Wakes a sender that is blocked on a peer which no longer reads.
      connection_.Cancel();
      return;
    }
    EndActive({ErrorCode::kCancelled, "the prefill node is stopping"});
  }

 private:
  // An error ends the connection.
  [[nodiscard]] Status Handle(const Message& message) {
    switch (message.type) {
      case MessageType::kPrefillRequest: return Begin(message);
      case MessageType::kAbort: return CancelByPeer(message);
      case MessageType::kPing: return Answer(message);
      default:
        return MakeError(ErrorCode::kMismatch, "a message that a prefill node does not take");
    }
  }

  [[nodiscard]] Status Begin(const Message& message) {
    if (active_ && !active_->FinishesWithin(kTurnaround)) {
      return MakeError(ErrorCode::kMismatch, "a second request while one is running");
    }
    EndActive({});
    KVSERVE_ASSIGN(PrefillRequest request, DecodePrefillRequest(message.payload));
    const double stated_s = request.deadline_ms / 1000.0;
    const double limit_s = request.deadline_ms == 0 ? options_.max_request_s
                                                    : std::min(stated_s, options_.max_request_s);
    active_ =
        std::make_unique<ActiveRequest>(message.transfer_id, std::move(request), After(limit_s));
    active_->done = std::async(std::launch::async, [this, active = active_.get()] {
      const Status outcome = RunPrefillTransfer(resources_, connection_, active->transfer_id,
                                                active->request, active->scope);
      resources_.metrics.CountRequest(outcome ? "ok" : ErrorName(outcome.error().code));
    });
    return {};
  }

  // The peer has lost interest; it closes the connection after this message, and so do we.
  [[nodiscard]] Status CancelByPeer(const Message& message) {
    KVSERVE_ASSIGN(const Abort abort, DecodeAbort(message.payload));
    if (!active_ || active_->transfer_id != message.transfer_id) return {};
    active_->scope.Fail({ErrorCode::kCancelled, "cancelled by the decode node: " + abort.message});
    return MakeError(ErrorCode::kCancelled, "cancelled by the decode node");
  }

  // Only while nothing is being sent: the transfer's sender is then the only one.
  [[nodiscard]] Status Answer(const Message& message) {
    if (active_ && !active_->FinishesWithin({})) return {};
    EndActive({});
    KVSERVE_ASSIGN(const Ping ping, DecodePing(message.payload));
    std::vector<std::byte> payload;
    KVSERVE_TRY(Encode(ping, payload));
    return connection_.Send(MessageType::kPong, message.transfer_id, 0, payload, After(1.0));
  }

  void EndActive(const Error& reason) {
    if (!active_) return;
    if (!active_->FinishesWithin({})) active_->scope.Fail(reason);
    active_->done.get();
    active_.reset();
  }

  const PrefillResources& resources_;
  const PrefillSessionOptions& options_;
  Connection& connection_;
  std::unique_ptr<ActiveRequest> active_;
};

}  // namespace

void RunPrefillSession(const PrefillResources& resources, const PrefillSessionOptions& options,
                       Connection& connection) {
  Session session(resources, options, connection);
  session.Run();
}

}  // namespace kvserve
