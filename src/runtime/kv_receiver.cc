#include "runtime/kv_receiver.h"

#include <algorithm>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "base/bounded_queue.h"
#include "base/token_ranges.h"
#include "base/try.h"
#include "frame/frame.h"
#include "kvserve/codec.h"
#include "net/messages.h"
#include "runtime/chunk_plan.h"
#include "stages/profile_facts.h"

namespace kvserve {
namespace {

constexpr double kPollSeconds = 0.2;  // how soon the receiver sees that nobody waits any more
constexpr std::chrono::milliseconds kAliveInterval{50};
constexpr double kSendSeconds = 10.0;
constexpr double kMinimumRateSeconds = 0.002;  // shorter receptions say nothing about the link
constexpr std::size_t kQueuedMessages = 2;

class Receiver {
 public:
  Receiver(EngineWorker& worker, BufferPool& buffers, Connection& connection,
           std::uint64_t transfer_id, std::span<const Token> tokens, SequenceId sequence,
           const KvTransferOptions& options, RequestScope& scope,
           const std::function<bool()>& alive, bool& started)
      : worker_(worker),
        buffers_(buffers),
        connection_(connection),
        transfer_id_(transfer_id),
        tokens_(tokens),
        sequence_(sequence),
        options_(options),
        scope_(scope),
        alive_(alive),
        started_(started),
        total_tokens_(static_cast<std::uint32_t>(tokens.size())),
        expected_chunks_(ChunkCount(total_tokens_, options.chunk_tokens)) {
    max_payload_ = std::max<std::size_t>(kMaxControlBytes, 2 * ChunkRawBytes() + (1 << 20));
  }

  Result<KvTransferReport> Run() {
    // One thread: the engine's threads and the peer's have the other cores.
    KVSERVE_ASSIGN(auto decoder,
                   FrameDecoder::Create({.threads = 1, .calibration = options_.calibration}));
    decoder_.emplace(std::move(decoder));
    KVSERVE_ASSIGN(profile_, ParseProfile(options_.profile));
    KVSERVE_TRY(SendRequest());
    std::thread receiver([this] { ReceiveLoop(); });
    Status status = Consume();
    if (status) status = AwaitInjection();
    if (status) status = DropTokens();
    stop_ = true;
    messages_.Close();
    receiver.join();
    injection_.reset();  // waits for an injection that is still running
    if (!status) return tl::unexpected(status.error());
    if (rate_s_ >= kMinimumRateSeconds) report_.link_bytes_per_s = rate_bytes_ / rate_s_;
    return report_;
  }

 private:
  // An injection in flight and the buffer it reads.
  struct Injection {
    explicit Injection(BufferPool::Lease chunk) : kv(std::move(chunk)) {}
    BufferPool::Lease kv;
    std::future<Status> done;
    ~Injection() {
      if (done.valid()) done.wait();
    }
  };

  [[nodiscard]] std::uint64_t ChunkRawBytes() const {
    const KvGeometry& geometry = worker_.info().geometry;
    std::uint64_t bytes = 0;
    for (const auto& layer : geometry.layers) {
      bytes += LayerBytes(layer, geometry.dtype, options_.chunk_tokens);
    }
    return bytes;
  }

  [[nodiscard]] Status SendRequest() {
    PrefillRequest request;
    request.profile = options_.profile;
    request.tokens.assign(tokens_.begin(), tokens_.end());
    request.chunk_tokens = options_.chunk_tokens;
    request.prompt_tokens = total_tokens_;
    const double left_s = std::chrono::duration<double>(scope_.deadline() - Clock::now()).count();
    request.deadline_ms = static_cast<std::uint32_t>(std::clamp(left_s * 1000.0, 1.0, 4e9));
    std::vector<std::byte> payload;
    KVSERVE_TRY(Encode(request, payload));
    return connection_.Send(MessageType::kPrefillRequest, transfer_id_, 0, payload,
                            std::min(scope_.deadline(), After(kSendSeconds)));
  }

  void ReceiveLoop() {
    std::uint64_t bytes_before = connection_.stats().received_bytes;
    Clock::time_point last_progress = Clock::now();
    Message message;
    while (!stop_) {
      const Status received = connection_.Receive(After(kPollSeconds), max_payload_, message);
      const std::uint64_t bytes = connection_.stats().received_bytes;
      if (received || bytes != bytes_before) last_progress = Clock::now();
      bytes_before = bytes;
      if (received) {
        if (message.transfer_id != transfer_id_) continue;  // late data of an older transfer
        const bool last =
            message.type == MessageType::kTransferEnd || message.type == MessageType::kAbort;
        if (!messages_.Push(std::move(message)) || last) break;
        message = spare_.TryPop().value_or(Message());
        last_progress = Clock::now();  // time spent waiting for our own decoder is not the peer's
      } else if (received.error().code != ErrorCode::kDeadlineExceeded) {
        receive_error_ = received.error();
        break;
      } else if (SecondsSince(last_progress) > options_.stall_s) {
        receive_error_ = Error{ErrorCode::kDeadlineExceeded, "nothing came from the prefill node"};
        break;
      }
    }
    messages_.Close();
  }

  [[nodiscard]] Status Consume() {
    for (;;) {
      KVSERVE_TRY(scope_.Check(alive_));
      auto message = messages_.PopFor(kAliveInterval);
      if (!message) {
        if (!messages_.drained()) continue;
        if (receive_error_) return tl::unexpected(*receive_error_);
        return MakeError(ErrorCode::kUnavailable, "the transfer ended early");
      }
      started_ = true;
      report_.wire_s += message->receive_s;
      switch (message->type) {
        case MessageType::kPrefillStarted: KVSERVE_TRY(CheckStarted(*message)); break;
        case MessageType::kChunk: KVSERVE_TRY(TakeChunk(*message)); break;
        case MessageType::kTransferEnd: return CheckEnd(*message);
        case MessageType::kAbort: return PeerAborted(*message);
        default: return MakeError(ErrorCode::kCorruptData, "unexpected message type");
      }
      (void)spare_.TryPush(std::move(*message));  // for its capacity; a full queue has enough
    }
  }

  [[nodiscard]] Status CheckStarted(const Message& message) const {
    KVSERVE_ASSIGN(const PrefillStarted begun, DecodePrefillStarted(message.payload));
    if (begun.tokens == total_tokens_ && begun.chunks == expected_chunks_) return {};
    return MakeError(ErrorCode::kMismatch,
                     "the prefill node offers " + std::to_string(begun.tokens) + " tokens in " +
                         std::to_string(begun.chunks) + " chunks, " +
                         std::to_string(total_tokens_) + " in " + std::to_string(expected_chunks_) +
                         " were asked for");
  }

  [[nodiscard]] Status TakeChunk(const Message& message) {
    KVSERVE_ASSIGN(const Chunk chunk, DecodeChunk(message.payload));
    const TokenRange expected = ChunkRange(report_.chunks, total_tokens_, options_.chunk_tokens);
    if (message.index != report_.chunks || chunk.info.tokens != expected || expected.empty()) {
      return MakeError(ErrorCode::kMismatch,
                       "chunk " + std::to_string(message.index) + " with tokens " +
                           std::to_string(chunk.info.tokens.begin) + ".." +
                           std::to_string(chunk.info.tokens.end) + " came where chunk " +
                           std::to_string(report_.chunks) + " was due");
    }
    const auto begin = Clock::now();
    auto kv = buffers_.Acquire();
    KVSERVE_TRY(DecodeInto(chunk, *kv));
    KVSERVE_TRY(NoteDropped(expected));
    KVSERVE_TRY(NoteDrift(chunk.frame));
    report_.decode_s += SecondsSince(begin);
    KVSERVE_TRY(AwaitInjection());
    Inject(std::move(kv));
    ++report_.chunks;
    report_.tokens += expected.size();
    report_.raw_bytes += chunk.info.raw_bytes;
    report_.wire_bytes += chunk.frame.size();
    if (message.wire_bytes > message.backlog_bytes) {
      rate_bytes_ += static_cast<double>(message.wire_bytes - message.backlog_bytes);
      rate_s_ += message.receive_s;
    }
    return {};
  }

  // The frame's own checksums say that it is intact; these checks say that it is the right one.
  [[nodiscard]] Status DecodeInto(const Chunk& chunk, KvBuffer& kv) {
    const ModelInfo& model = worker_.info();
    const DecodeOptions options{model.fingerprint,
                                PrefixKey(model.fingerprint, tokens_.first(chunk.info.tokens.end)),
                                2 * ChunkRawBytes() + (1 << 20)};
    KVSERVE_ASSIGN(const std::size_t used, decoder_->Decode(chunk.frame, options, kv));
    if (used != chunk.frame.size()) {
      return MakeError(ErrorCode::kCorruptData, "bytes follow the frame of a chunk");
    }
    if (kv.tokens() != chunk.info.tokens || kv.geometry() != model.geometry) {
      return MakeError(ErrorCode::kMismatch, "the frame has other tokens or another geometry");
    }
    const ConstKvView view = std::as_const(kv).view();
    if (RawBytes(view) != chunk.info.raw_bytes ||
        view.layers.size() != model.geometry.layers.size()) {
      return MakeError(ErrorCode::kMismatch, "the frame does not hold all layers");
    }
    for (const auto& layer : view.layers) {
      const auto& shape = model.geometry.layers[layer.layer];
      if (layer.tokens != TokensHeld(shape, chunk.info.tokens, total_tokens_)) {
        return MakeError(ErrorCode::kMismatch,
                         "layer " + std::to_string(layer.layer) + " lacks tokens of the chunk");
      }
    }
    return {};
  }

  // Lossless frames of a lossy profile are what it could not code, and the peer counts them.
  [[nodiscard]] Status NoteDrift(std::span<const std::byte> frame) {
    KVSERVE_ASSIGN(const FrameView read, ReadFrame(frame));
    const auto& stages = read.header.stages;
    const bool as_asked = std::equal(
        stages.begin(), stages.end(), profile_.stages.begin(), profile_.stages.end(),
        [](const StageSpec& sent, const StageSpec& asked) { return sent.id == asked.id; });
    if (!as_asked && !IsLossless(stages)) ++report_.drift_fallback_chunks;
    return {};
  }

  // A cell of the engine is one token of all layers, keys and values.
  [[nodiscard]] Status NoteDropped(TokenRange tokens) {
    if (decoder_->partly_dropped()) {
      return MakeError(ErrorCode::kUnsupported,
                       "the frame leaves other tokens out of one layer than of another, and the "
                       "engine can only drop them from all; a selector with outside above 0 thins");
    }
    AppendMarked(decoder_->dropped(), tokens.begin, dropped_);
    return {};
  }

  // When all tokens are there, since chunks are injected without gaps.
  [[nodiscard]] Status DropTokens() {
    if (dropped_.empty()) return {};
    for (const TokenRange tokens : dropped_) report_.dropped_tokens += tokens.size();
    return worker_.Run([this](Engine& engine) -> Status {
      for (const TokenRange tokens : dropped_) KVSERVE_TRY(engine.Drop(sequence_, tokens));
      return {};
    });
  }

  void Inject(BufferPool::Lease kv) {
    injection_.emplace(std::move(kv));
    injection_->done =
        worker_.RunAsync([this, buffer = injection_->kv.get()](Engine& engine) -> Status {
          const ScopedTimer timer(inject_s_);
          return engine.Inject(sequence_, std::as_const(*buffer).view());
        });
  }

  [[nodiscard]] Status AwaitInjection() {
    if (!injection_) return {};
    Status status = injection_->done.get();
    injection_.reset();
    report_.decode_s += std::exchange(inject_s_, 0.0);
    return status;
  }

  [[nodiscard]] Status CheckEnd(const Message& message) {
    KVSERVE_ASSIGN(const TransferEnd end, DecodeTransferEnd(message.payload));
    if (end.chunks != report_.chunks || report_.chunks != expected_chunks_ ||
        end.tokens != report_.tokens || report_.tokens != total_tokens_ ||
        end.raw_bytes != report_.raw_bytes || end.frame_bytes != report_.wire_bytes) {
      return MakeError(ErrorCode::kMismatch,
                       "the transfer ended after " + std::to_string(report_.chunks) + " of " +
                           std::to_string(expected_chunks_) + " chunks or its totals differ");
    }
    report_.lossless_fallback_chunks = end.fallbacks;
    report_.prefill_s = end.prefill_s;
    report_.encode_s = end.encode_s;
    return {};
  }

  [[nodiscard]] static Status PeerAborted(const Message& message) {
    KVSERVE_ASSIGN(const Abort abort, DecodeAbort(message.payload));
    return MakeError(abort.code, "prefill node: " + abort.message);
  }

  EngineWorker& worker_;
  BufferPool& buffers_;
  Connection& connection_;
  const std::uint64_t transfer_id_;
  const std::span<const Token> tokens_;
  const SequenceId sequence_;
  const KvTransferOptions& options_;
  RequestScope& scope_;
  const std::function<bool()>& alive_;
  bool& started_;
  const std::uint32_t total_tokens_;
  const std::uint32_t expected_chunks_;
  std::size_t max_payload_ = 0;
  std::vector<TokenRange> dropped_;  // ascending
  KvTransferReport report_;
  double inject_s_ = 0.0;  // written on the engine thread, read after its future
  double rate_bytes_ = 0.0;
  double rate_s_ = 0.0;
  std::atomic<bool> stop_{false};
  std::optional<Error> receive_error_;  // the receiver's until messages_ is closed
  BoundedQueue<Message> messages_{kQueuedMessages};
  BoundedQueue<Message> spare_{kQueuedMessages + 2};  // payloads to receive into again
  std::optional<FrameDecoder> decoder_;
  Profile profile_;  // asked for
  std::optional<Injection> injection_;
};

}  // namespace

Result<KvTransferReport> ReceiveKv(EngineWorker& worker, BufferPool& buffers,
                                   Connection& connection, std::uint64_t transfer_id,
                                   std::span<const Token> tokens, SequenceId sequence,
                                   const KvTransferOptions& options, RequestScope& scope,
                                   const std::function<bool()>& alive, bool& started) {
  Receiver receiver(worker, buffers, connection, transfer_id, tokens, sequence, options, scope,
                    alive, started);
  return receiver.Run();
}

}  // namespace kvserve
