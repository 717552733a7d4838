#include "runtime/prefill_node.h"

#include "base/try.h"
#include "kvserve/codec.h"
#include "runtime/prefill_session.h"
#include "stages/frame_artefact.h"
#include "transfer/node_hello.h"

namespace kvserve {
namespace {

constexpr double kStopSeconds = 2.0;  // for aborts to reach the peers when the node stops

}  // namespace

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
  if (!options.fallback.stages.empty()) {
    KVSERVE_TRY(FrameEncoder::Create(options.fallback));
    if (options.calibration && options.calibration->contents().frame_expectation.planes.empty()) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "a fallback profile needs a calibration artefact that says what frames to "
                       "expect, and this one does not");
    }
  }
  std::unique_ptr<PrefillNode> node(new PrefillNode(worker, options));
  KVSERVE_ASSIGN(node->hello_, MakeHello(model.fingerprint, model.geometry, NodeRole::kPrefill));
  ConnectionServer::Options server;
  server.max_connections = options.max_connections;
  server.serve = [raw = node.get()](Connection& connection) { raw->Serve(connection); };
  server.count = [raw = node.get()](std::string_view outcome) {
    raw->metrics_.CountConnection(outcome);
  };
  KVSERVE_ASSIGN(node->server_,
                 ConnectionServer::Start(options.listen, options.token, std::move(server)));
  return node;
}

PrefillNode::~PrefillNode() {
  stopping_ = true;
  // Requests see stopping_ within their poll interval and abort; then the connections are cut.
  if (server_) server_->Stop(kStopSeconds);
}

std::size_t PrefillNode::connections() const {
  return server_ ? server_->connections() : 0;
}

void PrefillNode::Serve(Connection& connection) {
  connection.SetPacer(pacer_);
  const auto agreement =
      ServerHandshake(connection, hello_, options_.token, After(kHandshakeSeconds));
  if (!agreement) {
    metrics_.CountConnection("handshake_failed");
    connection.Finish(After(1.0));
    return;
  }
  const PrefillResources resources{worker_,
                                   gate_,
                                   buffers_,
                                   metrics_,
                                   stopping_,
                                   options_.chunk_tokens,
                                   options_.calibration,
                                   options_.fallback,
                                   options_.drift_notice};
  RunPrefillSession(resources, {options_.idle_s, options_.max_request_s}, connection);
}

}  // namespace kvserve
