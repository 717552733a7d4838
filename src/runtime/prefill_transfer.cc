#include "runtime/prefill_transfer.h"

#include <memory>
#include <optional>
#include <thread>

#include "base/bounded_queue.h"
#include "base/try.h"
#include "kvserve/codec.h"
#include "runtime/chunk_plan.h"
#include "stages/profile_facts.h"
#include "transfer/chunk_encoder.h"

namespace kvserve {
namespace {

constexpr double kAbortSeconds = 1.0;  // for telling a peer that may not be reading

struct CapturedChunk {
  BufferPool::Lease kv;
  ChunkInfo info;
};

struct Queues {
  BoundedQueue<CapturedChunk> captured{1};
  BoundedQueue<std::vector<std::byte>> encoded{1};
  BoundedQueue<std::vector<std::byte>> spare{2};  // payloads to encode into again
  void Close() {
    captured.Close();
    encoded.Close();
  }
};

class Transfer {
 public:
  Transfer(const PrefillResources& resources, Connection& connection, std::uint64_t transfer_id,
           const PrefillRequest& request, RequestScope& scope)
      : resources_(resources),
        connection_(connection),
        transfer_id_(transfer_id),
        request_(request),
        scope_(scope),
        total_tokens_(static_cast<std::uint32_t>(request.tokens.size())) {}

  Status Run() {
    Status status = Prepare();
    if (status) status = Stream();
    if (status) status = SendEnd();
    if (!status) SendAbort(status.error());
    return status;
  }

 private:
  [[nodiscard]] Status Prepare() {
    if (request_.chunk_tokens > resources_.max_chunk_tokens) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "chunk_tokens " + std::to_string(request_.chunk_tokens) +
                           " is above this node's " + std::to_string(resources_.max_chunk_tokens));
    }
    const ModelInfo& model = resources_.worker.info();
    if (total_tokens_ > model.context_tokens || request_.skip_tokens != 0 ||
        request_.prompt_tokens != total_tokens_) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "a request of " + std::to_string(total_tokens_) + " tokens, skipping " +
                           std::to_string(request_.skip_tokens) +
                           ", does not fit: the context holds " +
                           std::to_string(model.context_tokens) + " and nothing can be skipped");
    }
    for (const Token token : request_.tokens) {
      if (token < 0 || static_cast<std::uint32_t>(token) >= model.vocabulary) {
        return MakeError(ErrorCode::kInvalidArgument,
                         "token " + std::to_string(token) + " is not in the vocabulary");
      }
    }
    KVSERVE_ASSIGN(const Profile profile, ParseProfile(request_.profile));
    // One thread: the engine's threads and the peer's have the other cores.
    KVSERVE_ASSIGN(auto encoder,
                   ChunkEncoder::Create(profile, {.threads = 1,
                                                  .calibration = resources_.calibration,
                                                  .fallback = resources_.fallback}));
    encoder_.emplace(std::move(encoder));
    memory_.emplace(encoder_->NewRequest());
    resources_.metrics.SetProfile(profile, model.geometry.dtype);
    return {};
  }

  [[nodiscard]] Status Stream() {
    const auto arrived = Clock::now();
    KVSERVE_ASSIGN(auto entered, resources_.gate.Enter(scope_, [this] { return NodeRuns(); }));
    std::optional<SequenceGate::Ticket> ticket(std::move(entered));
    KVSERVE_ASSIGN(auto sequence, OpenedSequence::Open(resources_.worker));
    chunks_ = ChunkCount(total_tokens_, request_.chunk_tokens);
    std::vector<std::byte> started;
    KVSERVE_TRY(Encode(PrefillStarted{total_tokens_, chunks_, SecondsSince(arrived)}, started));
    KVSERVE_TRY(connection_.Send(MessageType::kPrefillStarted, transfer_id_, 0, started,
                                 scope_.deadline()));
    scope_.OnFailure([queues = queues_] { queues->Close(); });
    std::thread encoder([this] { EncodeLoop(); });
    std::thread sender([this] { SendLoop(); });
    ComputeLoop(sequence.id());
    queues_->captured.Close();
    // Whoever waits for a sequence need not wait for the link as well.
    sequence.Close();
    ticket.reset();
    encoder.join();
    sender.join();
    return scope_.Check();
  }

  [[nodiscard]] bool NodeRuns() {
    if (resources_.stopping) scope_.Fail({ErrorCode::kCancelled, "the prefill node is stopping"});
    return !resources_.stopping;
  }

  // Prefill and capture of a chunk are one engine call: a window layer forgets tokens later.
  void ComputeLoop(SequenceId sequence) {
    for (std::uint32_t index = 0; index < chunks_ && NodeRuns() && scope_.Check(); ++index) {
      CapturedChunk chunk{resources_.buffers.Acquire(), {}};
      chunk.info.tokens = ChunkRange(index, total_tokens_, request_.chunk_tokens);
      const Status status = resources_.worker.Run([&](Engine& engine) -> Status {
        const TokenRange range = chunk.info.tokens;
        const auto tokens = std::span(request_.tokens).subspan(range.begin, range.size());
        {
          const ScopedTimer timer(chunk.info.prefill_s);
          KVSERVE_TRY(engine.Prefill(sequence, tokens, range.begin));
        }
        const ScopedTimer timer(chunk.info.encode_s);
        return engine.Capture(sequence, range, total_tokens_, *chunk.kv);
      });
      if (!status) return scope_.Fail(status.error());
      if (!queues_->captured.Push(std::move(chunk))) return;
    }
  }

  void EncodeLoop() {
    while (auto chunk = queues_->captured.Pop()) {
      std::vector<std::byte> payload = queues_->spare.TryPop().value_or(std::vector<std::byte>());
      if (const Status status = EncodeChunk(*chunk, payload); !status) {
        return scope_.Fail(status.error());
      }
      chunk->kv.reset();
      if (!queues_->encoded.Push(std::move(payload))) return;
    }
    queues_->encoded.Close();
  }

  [[nodiscard]] Status EncodeChunk(CapturedChunk& chunk, std::vector<std::byte>& payload) {
    const auto begin = Clock::now();
    const ConstKvView view = std::as_const(*chunk.kv).view();
    const auto prefix = std::span(request_.tokens).first(chunk.info.tokens.end);
    const Fingerprint& model = resources_.worker.info().fingerprint;
    EncodeOptions options{model, PrefixKey(model, prefix), total_tokens_};
    options.request = &*memory_;
    chunk.info.raw_bytes = RawBytes(view);
    BeginChunk(payload);
    KVSERVE_ASSIGN(const bool fell_back, encoder_->Encode(view, options, payload));
    end_.fallbacks += fell_back ? 1 : 0;
    clamped_values_ += encoder_->clamped_values();
    if (!fell_back) NoteDrift(encoder_->drift());
    chunk.info.encode_s += SecondsSince(begin);
    KVSERVE_TRY(FinishChunk(chunk.info, payload));
    ++end_.chunks;
    end_.tokens += chunk.info.tokens.size();
    end_.raw_bytes += chunk.info.raw_bytes;
    end_.frame_bytes += payload.size() - kChunkInfoBytes;
    end_.prefill_s += chunk.info.prefill_s;
    end_.encode_s += chunk.info.encode_s;
    return {};
  }

  void SendLoop() {
    std::uint32_t index = 0;
    while (auto payload = queues_->encoded.Pop()) {
      if (!scope_.Check()) return;
      const Status status =
          connection_.Send(MessageType::kChunk, transfer_id_, index++, *payload, scope_.deadline());
      if (!status) return scope_.Fail(status.error());
      (void)queues_->spare.TryPush(std::move(*payload));  // for its capacity
    }
  }

  [[nodiscard]] Status SendEnd() {
    end_.profile = request_.profile;
    std::vector<std::byte> payload;
    KVSERVE_TRY(Encode(end_, payload));
    KVSERVE_TRY(
        connection_.Send(MessageType::kTransferEnd, transfer_id_, 0, payload, scope_.deadline()));
    resources_.metrics.CountTransfer(QualityClassOf(request_.profile));
    resources_.metrics.AddBytes(end_.raw_bytes, end_.frame_bytes);
    resources_.metrics.CountLosslessFallback(end_.fallbacks);
    resources_.metrics.CountClampedValues(clamped_values_);
    TellDrift();
    resources_.metrics.ObserveStage("prefill", end_.prefill_s);
    resources_.metrics.ObserveStage("encode", end_.encode_s);
    return {};
  }

  void NoteDrift(const FrameDrift& drift) {
    if (!drift.fell_back || drifted_.drifted_chunks++ > 0) return;
    drifted_.cause = drift.cause;
    drifted_.reason = drift.reason;
  }

  void TellDrift() {
    if (drifted_.drifted_chunks == 0) return;
    resources_.metrics.CountDriftFallback(drifted_.cause, drifted_.drifted_chunks);
    if (!resources_.drift_notice) return;
    drifted_.profile = request_.profile;
    drifted_.fallback = resources_.fallback.name;
    drifted_.chunks = end_.chunks;
    resources_.drift_notice(drifted_);
  }

  void SendAbort(const Error& error) {
    std::vector<std::byte> payload;
    if (!Encode(Abort{error.code, error.message}, payload)) return;
    // The peer may be gone, which is then the reason for the abort: nothing is left to tell.
    const Status told =
        connection_.Send(MessageType::kAbort, transfer_id_, 0, payload, After(kAbortSeconds));
    if (!told) connection_.Cancel();
  }

  const PrefillResources& resources_;
  Connection& connection_;
  const std::uint64_t transfer_id_;
  const PrefillRequest& request_;
  RequestScope& scope_;
  const std::uint32_t total_tokens_;
  std::uint32_t chunks_ = 0;
  std::optional<ChunkEncoder> encoder_;
  std::optional<RequestMemory> memory_;
  // The encoder's until it has been joined.
  TransferEnd end_;
  std::uint64_t clamped_values_ = 0;
  DriftedRequest drifted_;
  // Shared with the scope, which may fail after this object has gone.
  std::shared_ptr<Queues> queues_ = std::make_shared<Queues>();
};

}  // namespace

Status RunPrefillTransfer(const PrefillResources& resources, Connection& connection,
                          std::uint64_t transfer_id, const PrefillRequest& request,
                          RequestScope& scope) {
  Transfer transfer(resources, connection, transfer_id, request, scope);
  return transfer.Run();
}

}  // namespace kvserve
