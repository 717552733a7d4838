#include "runtime/decode_node.h"

#include "base/try.h"
#include "kvserve/codec.h"
#include "runtime/chunk_plan.h"
#include "runtime/text_stream.h"
#include "stages/frame_artefact.h"
#include "stages/profile_facts.h"
#include "transfer/node_hello.h"

namespace kvserve {
namespace {

// The prefill node would have to refuse it, request by request.
Result<Profile> CheckedProfile(const std::string& text, const DecodeNodeOptions& options) {
  KVSERVE_ASSIGN(Profile profile, ParseProfile(text));
  KVSERVE_ASSIGN(const ProfileFacts facts,
                 FactsOf(profile.stages, DType::kFloat16, ProfileOrigin::kCaller));
  KVSERVE_TRY(CheckNeedsNoQueries(facts));
  KVSERVE_TRY(FrameEncoder::Create(profile, {.calibration = options.calibration}));
  return profile;
}

}  // namespace

DecodeNode::DecodeNode(EngineWorker& worker, const DecodeNodeOptions& options)
    : worker_(worker),
      options_(options),
      buffers_(std::size_t{options.sequences} * 2),
      gate_(options.sequences, options.max_waiting) {
  metrics_.AddGauge("kvserve_buffers_in_use", "KV chunk buffers in use",
                    [this] { return static_cast<double>(buffers_.in_use()); });
  metrics_.AddGauge("kvserve_engine_queue_depth", "Calls waiting for the engine thread",
                    [this] { return static_cast<double>(worker_.queued()); });
  metrics_.AddGauge("kvserve_queue_depth", "Requests waiting for a sequence",
                    [this] { return static_cast<double>(gate_.waiting()); });
}

Result<std::unique_ptr<DecodeNode>> DecodeNode::Create(EngineWorker& worker,
                                                       const DecodeNodeOptions& options) {
  KVSERVE_ASSIGN(const Profile profile, CheckedProfile(options.profile, options));
  const ModelInfo& model = worker.info();
  if (options.calibration) {
    KVSERVE_TRY(CheckArtefactServes(model.geometry, model.fingerprint, *options.calibration));
  }
  std::unique_ptr<DecodeNode> node(new DecodeNode(worker, options));
  if (options.prefill) {
    node->metrics_.SetProfile(profile, model.geometry.dtype);
    KVSERVE_ASSIGN(Hello hello, MakeHello(model.fingerprint, model.geometry, NodeRole::kDecode));
    PeerPoolOptions peer;
    peer.address = *options.prefill;
    peer.token = options.token;
    peer.first_backoff_s = options.first_backoff_s;
    peer.count = [metrics = &node->metrics_](std::string_view outcome) {
      metrics->CountConnection(outcome);
    };
    node->peers_ = std::make_unique<PeerPool>(std::move(peer), std::move(hello));
  }
  return node;
}

void DecodeNode::Stop() {
  stopping_ = true;
  if (peers_) peers_->CancelConnects();
}

Status DecodeNode::ReachPeer() {
  if (!peers_) return {};
  auto peer = peers_->Acquire(After(options_.deadline_s), /*allow_idle=*/true);
  if (!peer) {
    peers_->ForgetFailure();
    return tl::unexpected(peer.error());
  }
  peers_->Return(std::move(peer->connection));
  return {};
}

Status DecodeNode::CheckRequest(const GenerateRequest& request) const {
  const ModelInfo& model = worker_.info();
  if (request.prompt.empty()) {
    return MakeError(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  }
  for (const Token token : request.prompt) {
    if (token < 0 || static_cast<std::uint32_t>(token) >= model.vocabulary) {
      return MakeError(ErrorCode::kInvalidArgument, "token " + std::to_string(token) +
                                                        " is not in the vocabulary of " +
                                                        std::to_string(model.vocabulary));
    }
  }
  if (request.max_tokens == 0 ||
      request.prompt.size() + request.max_tokens > model.context_tokens) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "a prompt of " + std::to_string(request.prompt.size()) + " tokens and " +
                         std::to_string(request.max_tokens) + " new ones do not fit a context of " +
                         std::to_string(model.context_tokens));
  }
  if (!request.profile.empty()) {
    KVSERVE_TRY(peers_ ? CheckedProfile(request.profile, options_) : ParseProfile(request.profile));
  }
  return {};
}

Result<GenerateReport> DecodeNode::Generate(const GenerateRequest& request,
                                            const std::function<bool()>& client_alive,
                                            const OnToken& on_token) {
  const auto arrived = Clock::now();
  RequestScope scope(After(options_.deadline_s));
  const std::function<bool()> alive = [&] {
    if (stopping_) scope.Fail({ErrorCode::kCancelled, "the node is stopping"});
    return !stopping_ && client_alive();
  };
  auto outcome = [&]() -> Result<GenerateReport> {
    KVSERVE_TRY(CheckRequest(request));
    GenerateReport report;
    KVSERVE_ASSIGN(const auto ticket, gate_.Enter(scope, alive));
    KVSERVE_ASSIGN(auto sequence, FillSequence(request, scope, alive, report));
    KVSERVE_TRY(DecodeTokens(request, sequence.id(), arrived, scope, alive, on_token, report));
    return report;
  }();
  Record(outcome);
  return outcome;
}

Result<OpenedSequence> DecodeNode::FillSequence(const GenerateRequest& request, RequestScope& scope,
                                                const std::function<bool()>& alive,
                                                GenerateReport& report) {
  const auto tokens = std::span(request.prompt).first(PrefillTokens(request.prompt.size()));
  KVSERVE_ASSIGN(auto sequence, OpenedSequence::Open(worker_));
  report.profile = "none";
  report.reason = "local";
  if (tokens.empty() || !peers_) {
    KVSERVE_TRY(ComputeLocally(tokens, sequence.id(), scope, alive, report));
    if (peers_) report.reason = "local: a prompt of one token has no KV to transfer";
    return sequence;
  }
  const std::string& profile = request.profile.empty() ? options_.profile : request.profile;
  auto transfer = Fetch(tokens, profile, sequence.id(), scope, alive);
  if (transfer) {
    report.source = KvSource::kTransferred;
    report.profile = profile;
    report.reason = request.profile.empty() ? "default" : "pinned";
    report.transfer = *transfer;
    return sequence;
  }
  // Nobody waits any more: no reason to compute.
  KVSERVE_TRY(scope.Check(alive));
  const Error& error = transfer.error();
  metrics_.CountFallback(ErrorName(error.code));
  // What has been injected so far is part of a whole that never came: it is dropped.
  sequence.Close();
  KVSERVE_ASSIGN(sequence, OpenedSequence::Open(worker_));
  KVSERVE_TRY(ComputeLocally(tokens, sequence.id(), scope, alive, report));
  report.source = KvSource::kRecomputed;
  report.recomputed_tokens = static_cast<std::uint32_t>(tokens.size());
  report.reason = std::string("recompute: ") + ErrorName(error.code) + ": " + error.message;
  return sequence;
}

Result<KvTransferReport> DecodeNode::Fetch(std::span<const Token> tokens,
                                           const std::string& profile, SequenceId sequence,
                                           RequestScope& scope,
                                           const std::function<bool()>& alive) {
  const KvTransferOptions options{profile, options_.chunk_tokens, options_.stall_s,
                                  options_.calibration};
  bool allow_idle = true;
  for (;;) {
    KVSERVE_ASSIGN(auto peer, peers_->Acquire(scope.deadline(), allow_idle));
    bool started = false;
    auto report = ReceiveKv(worker_, buffers_, *peer.connection, next_transfer_++, tokens, sequence,
                            options, scope, alive, started);
    if (report) {
      double& rate = report->link_bytes_per_s;
      if (rate > 0) link_bytes_per_s_ = rate;
      rate = link_bytes_per_s_;
      peers_->Return(std::move(peer.connection));
      return report;
    }
    // A connection that had been idle may have died unnoticed; that is not yet the peer's failure.
    const bool stale = !peer.fresh && !started && report.error().code == ErrorCode::kUnavailable;
    if (!stale) return report;
    allow_idle = false;
  }
}

Status DecodeNode::ComputeLocally(std::span<const Token> tokens, SequenceId sequence,
                                  RequestScope& scope, const std::function<bool()>& alive,
                                  GenerateReport& report) {
  const auto total = static_cast<std::uint32_t>(tokens.size());
  const ScopedTimer timer(report.transfer.prefill_s);
  for (std::uint32_t i = 0; i < ChunkCount(total, options_.chunk_tokens); ++i) {
    KVSERVE_TRY(scope.Check(alive));
    const TokenRange range = ChunkRange(i, total, options_.chunk_tokens);
    KVSERVE_TRY(worker_.Run([&](Engine& engine) {
      return engine.Prefill(sequence, tokens.subspan(range.begin, range.size()), range.begin);
    }));
  }
  return {};
}

Status DecodeNode::DecodeTokens(const GenerateRequest& request, SequenceId sequence,
                                Clock::time_point arrived, RequestScope& scope,
                                const std::function<bool()>& alive, const OnToken& on_token,
                                GenerateReport& report) {
  Sampler sampler(request.sampling);
  TextStream text(request.stops);
  Token token = request.prompt.back();
  auto position = static_cast<std::uint32_t>(request.prompt.size() - 1);
  Clock::time_point first_token_at;
  report.finish_reason = "length";
  while (report.tokens.size() < request.max_tokens) {
    KVSERVE_TRY(scope.Check(alive));
    const auto begin = Clock::now();
    KVSERVE_ASSIGN(token, worker_.Run([&](Engine& engine) -> Result<Token> {
      KVSERVE_ASSIGN(const auto logits, engine.Decode(sequence, token, position));
      return sampler.Pick(logits);
    }));
    ++position;
    if (report.tokens.empty()) {
      first_token_at = Clock::now();
      report.first_token_s = SecondsSince(begin);
      report.ttft_s = SecondsSince(arrived);
    }
    if (!request.ignore_end && worker_.text().EndsGeneration(token)) {
      report.finish_reason = "stop";
      break;
    }
    report.tokens.push_back(token);
    const std::string piece = text.Add(worker_.text().TokenText(token));
    if (!on_token(token, piece)) return MakeError(ErrorCode::kCancelled, "the client has gone");
    if (text.stopped()) {
      report.finish_reason = "stop";
      break;
    }
  }
  if (const std::string tail = text.Finish(); !tail.empty() && !on_token(std::nullopt, tail)) {
    return MakeError(ErrorCode::kCancelled, "the client has gone");
  }
  report.rest_s = SecondsSince(first_token_at);
  report.jct_s = SecondsSince(arrived);
  return {};
}

void DecodeNode::Record(const Result<GenerateReport>& outcome) {
  metrics_.CountRequest(outcome ? "ok" : ErrorName(outcome.error().code));
  if (!outcome) return;
  const KvTransferReport& transfer = outcome->transfer;
  metrics_.ObserveStage("prefill", transfer.prefill_s);
  metrics_.ObserveStage("first_token", outcome->first_token_s);
  metrics_.ObserveStage("rest", outcome->rest_s);
  metrics_.ObserveFirstToken(outcome->ttft_s);
  metrics_.ObserveCompletion(outcome->jct_s);
  if (outcome->source != KvSource::kTransferred) return;
  metrics_.ObserveStage("encode", transfer.encode_s);
  metrics_.ObserveStage("wire", transfer.wire_s);
  metrics_.ObserveStage("decode", transfer.decode_s);
  metrics_.CountTransfer(QualityClassOf(outcome->profile));
  metrics_.AddBytes(transfer.raw_bytes, transfer.wire_bytes);
  metrics_.CountLosslessFallback(transfer.lossless_fallback_chunks);
  if (transfer.link_bytes_per_s > 0) metrics_.SetLinkRate(transfer.link_bytes_per_s);
}

}  // namespace kvserve
