// One request on the prefill node: compute, encode and send its chunks, all at the same time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/buffer_pool.h"
#include "kvserve/calibration.h"
#include "kvserve/profile.h"
#include "net/connection.h"
#include "net/messages.h"
#include "runtime/drift_notice.h"
#include "runtime/engine_worker.h"
#include "runtime/metrics.h"
#include "runtime/request_scope.h"
#include "runtime/sequence_gate.h"

namespace kvserve {

// What a transfer uses; all outlive it.
struct PrefillResources {
  EngineWorker& worker;
  SequenceGate& gate;
  BufferPool& buffers;
  NodeMetrics& metrics;
  const std::atomic<bool>& stopping;  // seen at the next chunk border
  std::uint32_t max_chunk_tokens;
  std::shared_ptr<const CalibrationArtefact> calibration;  // null: none
  const Profile& fallback;                                 // no stages: none
  const DriftNotice& drift_notice;                         // null: nobody is told
};

// Blocks until the transfer has ended, in this thread and two of its own; the only sender on
// `connection` meanwhile. Every outcome is told to the peer (kTransferEnd or kAbort) if it can
// still be reached. `scope` fails from outside when the peer cancels or the node stops.
[[nodiscard]] Status RunPrefillTransfer(const PrefillResources& resources, Connection& connection,
                                        std::uint64_t transfer_id, const PrefillRequest& request,
                                        RequestScope& scope);

}  // namespace kvserve
