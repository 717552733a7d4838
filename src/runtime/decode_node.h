// The decode side of a pair: fetches a prompt's KV or computes it, then generates tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer_pool.h"
#include "net/peer_pool.h"
#include "runtime/engine_worker.h"
#include "runtime/kv_receiver.h"
#include "runtime/metrics.h"
#include "runtime/sampler.h"
#include "runtime/sequence_gate.h"

namespace kvserve {

struct DecodeNodeOptions {
  std::optional<HostPort> prefill;   // none: prompts are computed here
  AuthToken token;                   // of the prefill node
  std::string profile = "lossless";  // unless a request pins another
  std::uint32_t chunk_tokens = 256;
  std::uint32_t sequences = 4;
  std::uint32_t max_waiting = 16;  // requests waiting for a sequence; more are refused
  double deadline_s = 300.0;       // per request
  double stall_s = 30.0;           // KvTransferOptions
  double first_backoff_s = 0.25;   // PeerPoolOptions
  std::shared_ptr<const CalibrationArtefact> calibration;  // for frames that name one
};

struct GenerateRequest {
  std::vector<Token> prompt;
  std::uint32_t max_tokens = 16;
  SamplingOptions sampling;
  std::vector<std::string> stops;
  std::string profile;      // empty: the node's
  bool ignore_end = false;  // go on after an end token, to max_tokens
};

// Where the prompt's KV came from; `reason` in words is for people.
enum class KvSource { kTransferred, kLocal, kRecomputed };

struct GenerateReport {
  std::string finish_reason;  // "stop" or "length"
  std::vector<Token> tokens;
  KvSource source = KvSource::kLocal;
  std::string profile;  // "none" when nothing was transferred
  std::string reason;   // "default", "pinned", "local", "recompute: <error name>: <message>"
  KvTransferReport transfer;
  std::uint32_t recomputed_tokens = 0;
  double first_token_s = 0.0;  // evaluating the last prompt token and sampling
  double rest_s = 0.0;         // from the first token to the last
  double ttft_s = 0.0;
  double jct_s = 0.0;
};

// Told about every token as it is generated; `text` is whole UTF-8 characters and may be empty.
// False ends the generation (kCancelled).
using OnToken = std::function<bool(std::optional<Token> token, std::string_view text)>;

class DecodeNode {
 public:
  // `worker` outlives the node. kInvalidArgument: a profile that does not parse, or that needs a
  // calibration artefact where there is none; kMismatch: an artefact of another model.
  [[nodiscard]] static Result<std::unique_ptr<DecodeNode>> Create(EngineWorker& worker,
                                                                  const DecodeNodeOptions& options);

  // Blocks until the request has ended; any number of threads. Tokens depend on the request, the
  // model and the profile alone, not on other requests. Errors: kInvalidArgument (does not fit the
  // context, unknown profile), kResourceExhausted (too many requests), kDeadlineExceeded,
  // kCancelled (`alive` said no, or the node stops). Failures of the prefill node are none: the
  // prompt is computed here, which the report and the metrics say.
  [[nodiscard]] Result<GenerateReport> Generate(const GenerateRequest& request,
                                                const std::function<bool()>& alive,
                                                const OnToken& on_token);
  // One attempt to connect to the prefill node, for start-up: tells an operator of a wrong token or
  // model before the first request does. The errors of PeerPool; fine without a prefill node.
  [[nodiscard]] Status ReachPeer();
  // What Generate checks first: kInvalidArgument, also for a profile as Create refuses it.
  [[nodiscard]] Status CheckRequest(const GenerateRequest& request) const;
  // Ends running requests with kCancelled and refuses new ones.
  void Stop();

  [[nodiscard]] const EngineWorker& worker() const { return worker_; }
  [[nodiscard]] NodeMetrics& metrics() { return metrics_; }
  [[nodiscard]] int buffers_in_use() const { return buffers_.in_use(); }

 private:
  DecodeNode(EngineWorker& worker, const DecodeNodeOptions& options);
  [[nodiscard]] Result<OpenedSequence> FillSequence(const GenerateRequest& request,
                                                    RequestScope& scope,
                                                    const std::function<bool()>& alive,
                                                    GenerateReport& report);
  [[nodiscard]] Result<KvTransferReport> Fetch(std::span<const Token> tokens,
                                               const std::string& profile, SequenceId sequence,
                                               RequestScope& scope,
                                               const std::function<bool()>& alive);
  [[nodiscard]] Status ComputeLocally(std::span<const Token> tokens, SequenceId sequence,
                                      RequestScope& scope, const std::function<bool()>& alive,
                                      GenerateReport& report);
  [[nodiscard]] Status DecodeTokens(const GenerateRequest& request, SequenceId sequence,
                                    Clock::time_point arrived, RequestScope& scope,
                                    const std::function<bool()>& alive, const OnToken& on_token,
                                    GenerateReport& report);
  void Record(const Result<GenerateReport>& outcome);

  EngineWorker& worker_;
  const DecodeNodeOptions options_;
  NodeMetrics metrics_{"decode"};
  BufferPool buffers_;
  SequenceGate gate_;
  std::unique_ptr<PeerPool> peers_;
  std::atomic<std::uint64_t> next_transfer_{1};
  std::atomic<double> link_bytes_per_s_{0.0};  // of the last transfer that could tell
  std::atomic<bool> stopping_{false};
};

}  // namespace kvserve
