// The prefill side of a pair: computes the KV of prompts and sends it chunk by chunk.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/buffer_pool.h"
#include "kvserve/calibration.h"
#include "kvserve/profile.h"
#include "net/connection_server.h"
#include "net/handshake.h"
#include "runtime/drift_notice.h"
#include "runtime/engine_worker.h"
#include "runtime/metrics.h"
#include "runtime/sequence_gate.h"

namespace kvserve {

struct PrefillNodeOptions {
  HostPort listen;
  AuthToken token;                     // required when `listen` is not loopback
  std::uint32_t chunk_tokens = 256;    // largest chunk a request may ask for
  std::uint32_t sequences = 4;         // requests computed at the same time
  std::uint32_t max_waiting = 64;      // requests waiting for a sequence
  std::uint32_t max_connections = 64;  // more are closed at once
  double idle_s = 600.0;               // a connection without a request is closed after this
  double max_request_s = 3600.0;       // bound for requests that state no deadline
  double pace_bytes_per_s = 0.0;  // limits what is sent, all connections together; 0: unlimited
  std::shared_ptr<const CalibrationArtefact> calibration;  // for profiles that need one
  // For chunks that are unlike its texts (CodecOptions::fallback); no stages: none.
  Profile fallback;
  DriftNotice drift_notice;
};

// Each connection has one thread that reads; a request adds one that computes, one that encodes and
// one that sends, with short queues between them: a peer that reads slowly stops its own request
// and no other. Memory: at most three chunks and three frames per connection, since a request gives
// its sequence back before the link has taken its last chunks.
class PrefillNode {
 public:
  // `worker` outlives the node. Errors are the listener's; kMismatch: an artefact of another model.
  [[nodiscard]] static Result<std::unique_ptr<PrefillNode>> Start(
      EngineWorker& worker, const PrefillNodeOptions& options);
  // Ends every request with an abort (kCancelled) and closes all connections.
  ~PrefillNode();
  PrefillNode(const PrefillNode&) = delete;
  PrefillNode& operator=(const PrefillNode&) = delete;

  [[nodiscard]] HostPort address() const { return server_->address(); }
  [[nodiscard]] NodeMetrics& metrics() { return metrics_; }
  [[nodiscard]] int buffers_in_use() const { return buffers_.in_use(); }
  [[nodiscard]] std::size_t connections() const;

 private:
  PrefillNode(EngineWorker& worker, const PrefillNodeOptions& options);
  void Serve(Connection& connection);

  EngineWorker& worker_;
  const PrefillNodeOptions options_;
  Hello hello_;
  NodeMetrics metrics_{"prefill"};
  BufferPool buffers_;
  SequenceGate gate_;
  std::shared_ptr<Pacer> pacer_;
  std::atomic<bool> stopping_{false};
  std::unique_ptr<ConnectionServer> server_;  // last: its threads use all of the above
};

}  // namespace kvserve
