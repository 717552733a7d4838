// Receives one prompt's KV from the prefill node and puts it into a sequence, checking everything.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/buffer_pool.h"
#include "kvserve/calibration.h"
#include "net/connection.h"
#include "runtime/engine_worker.h"
#include "runtime/request_scope.h"

namespace kvserve {

struct KvTransferOptions {
  std::string profile;
  std::uint32_t chunk_tokens = 256;
  double stall_s = 30.0;  // no byte from the peer for so long: the transfer has failed
  std::shared_ptr<const CalibrationArtefact> calibration;  // for frames that name one
};

struct KvTransferReport {
  std::uint64_t raw_bytes = 0;
  std::uint64_t wire_bytes = 0;  // frames
  std::uint32_t tokens = 0;
  std::uint32_t chunks = 0;
  std::uint32_t lossless_fallback_chunks = 0;
  std::uint32_t drift_fallback_chunks = 0;  // lossy ones by another profile than asked for
  std::uint32_t dropped_tokens = 0;         // that the frames left out, and the sequence lacks
  double prefill_s = 0.0;
  double encode_s = 0.0;
  double wire_s = 0.0;            // actively receiving
  double decode_s = 0.0;          // frame decoding and injection
  double link_bytes_per_s = 0.0;  // 0: nothing was received for long enough to tell
};

// Blocks; runs a second thread that receives while this one decodes and the engine injects. The
// sequence holds the KV of all `tokens` afterwards but of those that the profile drops, or must be
// closed: after an error it may hold some. Errors: kCorruptData, kMismatch (frames that are not
// what was asked for, whatever their checksum says), kUnavailable, kDeadlineExceeded (stall or
// deadline), the peer's abort with its code and "prefill node: " before its message, kCancelled
// when `alive` says no. `started` tells whether the peer has answered at all.
[[nodiscard]] Result<KvTransferReport> ReceiveKv(EngineWorker& worker, BufferPool& buffers,
                                                 Connection& connection, std::uint64_t transfer_id,
                                                 std::span<const Token> tokens, SequenceId sequence,
                                                 const KvTransferOptions& options,
                                                 RequestScope& scope,
                                                 const std::function<bool()>& alive, bool& started);

}  // namespace kvserve
