#include "runtime/prefill_node.h"

#include "base/try.h"
#include "runtime/prefill_session.h"
#include "stages/frame_artefact.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

constexpr double kStopSeconds = 2.0;     // for aborts to reach the peers when the node stops
constexpr double kAcceptSeconds = 3600;  // Accept is woken by Close; any long time does

}  // namespace

Result<Hello> MakeHello(const ModelInfo& model, NodeRole role) {
  Hello hello;
  hello.role = role;
  KVSERVE_ASSIGN(hello.epoch, NewEpoch());
  hello.model = model.fingerprint;
  hello.geometry = model.geometry;
  for (const StageEntry& entry : BuiltinStages()) {
    hello.stages.push_back({entry.info->id, entry.info->version});
  }
  return hello;
}

PrefillNode::PrefillNode(EngineWorker& worker, const PrefillNodeOptions& options)
    : worker_(worker),
      options_(options),
      buffers_(std::size_t{options.sequences} * 3),
      gate_(options.sequences, options.max_waiting) {
  if (options.pace_bytes_per_s > 0) pacer_ = std::make_shared<Pacer>(options.pace_bytes_per_s);
  metrics_.AddGauge("kvserve_connections", "Open node connections",
                    [this] { return static_cast<double>(connections()); });
  metrics_.AddGauge("kvserve_buffers_in_use", "KV chunk buffers in use",
                    [this] { return static_cast<double>(buffers_.in_use()); });
  metrics_.AddGauge("kvserve_engine_queue_depth", "Calls waiting for the engine thread",
                    [this] { return static_cast<double>(worker_.queued()); });
  metrics_.AddGauge("kvserve_queue_depth", "Requests waiting for a sequence",
                    [this] { return static_cast<double>(gate_.waiting()); });
}

Result<std::unique_ptr<PrefillNode>> PrefillNode::Start(EngineWorker& worker,
                                                        const PrefillNodeOptions& options) {
  const ModelInfo& model = worker.info();
  if (options.calibration) {
    KVSERVE_TRY(CheckArtefactServes(model.geometry, model.fingerprint, *options.calibration));
  }
  std::unique_ptr<PrefillNode> node(new PrefillNode(worker, options));
  KVSERVE_ASSIGN(node->hello_, MakeHello(model, NodeRole::kPrefill));
  KVSERVE_ASSIGN(node->listener_, Listener::Bind(options.listen, options.token));
  node->accept_thread_ = std::thread([raw = node.get()] { raw->AcceptLoop(); });
  return node;
}

PrefillNode::~PrefillNode() {
  stopping_ = true;
  if (listener_) listener_->Close();
  if (accept_thread_.joinable()) accept_thread_.join();
  listener_.reset();  // new connections are refused from here on, not left waiting
  // Requests see stopping_ within their poll interval and abort; then the connections are cut.
  const Deadline limit = After(kStopSeconds);
  for (Peer& peer : peers_) {
    while (!peer.finished && Clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    peer.connection->Cancel();
  }
  for (Peer& peer : peers_) peer.thread.join();
}

std::size_t PrefillNode::connections() const {
  const std::lock_guard lock(mutex_);
  std::size_t open = 0;
  for (const Peer& peer : peers_) open += peer.finished ? 0 : 1;
  return open;
}

void PrefillNode::AcceptLoop() {
  while (!stopping_) {
    auto connection = listener_->Accept(After(kAcceptSeconds));
    ReapFinished();
    if (connection) {
      Admit(std::move(*connection));
    } else if (connection.error().code == ErrorCode::kCancelled) {
      return;
    } else if (connection.error().code == ErrorCode::kResourceExhausted) {
      metrics_.CountConnection("no_descriptor");
    }
  }
}

void PrefillNode::ReapFinished() {
  const std::lock_guard lock(mutex_);
  for (auto peer = peers_.begin(); peer != peers_.end();) {
    if (!peer->finished) {
      ++peer;
      continue;
    }
    peer->thread.join();
    peer = peers_.erase(peer);
  }
}

void PrefillNode::Admit(std::unique_ptr<Connection> connection) {
  const std::lock_guard lock(mutex_);
  if (peers_.size() >= options_.max_connections) {
    metrics_.CountConnection("refused");
    return;
  }
  metrics_.CountConnection("accepted");
  Peer& peer = peers_.emplace_back();
  peer.connection = std::move(connection);
  peer.thread = std::thread([this, &peer] {
    Serve(peer);
    peer.connection->Cancel();
    peer.finished = true;
  });
}

void PrefillNode::Serve(Peer& peer) {
  Connection& connection = *peer.connection;
  connection.SetPacer(pacer_);
  const auto agreement =
      ServerHandshake(connection, hello_, options_.token, After(kHandshakeSeconds));
  if (!agreement) {
    metrics_.CountConnection("handshake_failed");
    connection.Finish(After(1.0));
    return;
  }
  const PrefillResources resources{
      worker_, gate_, buffers_, metrics_, stopping_, options_.chunk_tokens, options_.calibration};
  RunPrefillSession(resources, {options_.idle_s, options_.max_request_s}, connection);
}

}  // namespace kvserve
