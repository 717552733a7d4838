// The sending side between two engines: reads a request's KV out of the engine's blocks as it is
// computed, encodes it, and serves it to whoever has the ticket.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvserve/calibration.h"
#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "kvserve/paged.h"
#include "kvserve/profile.h"

namespace kvserve {

struct SenderOptions {
  std::string listen = "127.0.0.1:0";  // host:port; beyond loopback a token is required
  std::string token_file;              // shared secret, mode 600; empty: none
  Fingerprint model;                   // receivers of another model are refused
  std::uint32_t frame_tokens = 256;    // tokens per frame, 1..65536
  std::uint32_t layers_per_frame = 0;  // 0: all; fewer leave sooner and cost more bytes
  std::uint32_t threads = 1;           // that encode, 1..64
  double lease_s = 300.0;              // a ticket is dropped when nothing of it was staged or taken
                                       // for so long
  std::uint64_t max_staged_bytes = std::uint64_t{4}
                                   << 30;                  // frames and raw KV waiting, all tickets
  double pace_bytes_per_s = 0.0;                           // all receivers together; 0: unlimited
  std::shared_ptr<const CalibrationArtefact> calibration;  // for profiles that need one
  // For frames unlike the calibration's texts (CodecOptions::fallback), as ParseProfile gives it;
  // no stages: none does. Receivers are told its name.
  Profile fallback;
};

// What is sent under a ticket.
struct Offer {
  std::string profile;               // short form; "none" and "lossless" keep every bit
  std::vector<std::int32_t> tokens;  // whose KV is sent: the prompt or a part from its start
  std::string context;  // whatever else the KV depends on (adapter, image hashes, tenant's salt);
                        // receivers must state the same
  std::uint32_t receivers = 1;  // that will take it; it is kept until so many have
};

enum class OfferOutcome : std::uint8_t {
  kDelivered = 0,  // its receivers have taken and confirmed all they wanted
  kExpired = 1,    // not staged, or not taken, within the lease
  kWithdrawn = 2,  // by Withdraw, or a receiver said that it needs nothing
  kFailed = 3,     // could not be read, encoded or held; receivers were told why
};

struct OfferReport {
  std::string ticket;
  OfferOutcome outcome = OfferOutcome::kDelivered;
  Error error;  // unless delivered
  std::uint32_t tokens = 0;
  std::uint32_t frames = 0;
  std::uint32_t lossless_fallbacks = 0;  // frames that the profile could not code or made larger
  std::uint32_t drift_fallbacks = 0;     // frames that SenderOptions::fallback encoded
  std::string drift_cause;               // FrameDrift::cause of the first of those
  std::string drift_reason;              // FrameDrift::reason of the first of those
  std::uint64_t raw_bytes = 0;           // staged, in the cache dtype
  std::uint64_t wire_bytes = 0;          // frames made
  std::uint64_t sent_bytes = 0;          // frames taken by receivers
  double gather_s = 0.0;                 // summed over threads
  double encode_s = 0.0;                 // likewise
  double ready_s = 0.0;                  // from Begin to the last frame made
};

// Memory is bounded by max_staged_bytes: a ticket beyond it fails, and its receiver recomputes. The
// engine's blocks are read at once (WaitRead) and never held for a receiver. All calls are
// thread-safe and none waits for the network.
class KvSender {
 public:
  // `cache` is copied; its memory outlives the sender. Errors: kInvalidArgument (options, cache; a
  // fallback that needs an artefact), kUnsupported (a fallback that drops tokens or needs queries),
  // those of the listener, kResourceExhausted.
  [[nodiscard]] static Result<std::unique_ptr<KvSender>> Start(const PagedCache& cache,
                                                               const SenderOptions& options);
  // Ends every transfer; receivers are told kCancelled.
  virtual ~KvSender() = default;
  KvSender(const KvSender&) = delete;
  KvSender& operator=(const KvSender&) = delete;

  [[nodiscard]] virtual std::string address() const = 0;  // with the real port

  // Opens `ticket` (1..256 bytes, never used before). kInvalidArgument: a profile that does not
  // parse or cannot code the cache's dtype, no tokens, ticket in use or used before;
  // kResourceExhausted.
  [[nodiscard]] virtual Status Begin(std::string_view ticket, Offer offer) = 0;

  // The KV of `tokens` in layers [first_layer, first_layer + layers) is in the request's blocks:
  // read it and encode what is complete. Returns before anything is read. Tokens come in order per
  // layer, each once; when all tokens of all layers are there the offer is complete. A sliding
  // window layer is given all its tokens; those outside of the window at the end of the offer are
  // left out. Nothing is done for a ticket that has ended; its report says why. kInvalidArgument:
  // unknown ticket, range, tables.
  [[nodiscard]] virtual Status Stage(std::string_view ticket, std::span<const BlockTable> tables,
                                     TokenRange tokens, std::uint32_t first_layer,
                                     std::uint32_t layers) = 0;

  // Returns when everything staged so far has been read: its blocks may be overwritten.
  virtual void WaitRead() = 0;

  // Drops a ticket; a receiver is told the reason. Unknown tickets are ignored.
  virtual void Withdraw(std::string_view ticket, const Error& reason) = 0;

  // Tickets that have ended since the last call, each once.
  [[nodiscard]] virtual std::vector<OfferReport> TakeReports() = 0;

  [[nodiscard]] virtual std::size_t open_tickets() const = 0;
  [[nodiscard]] virtual std::uint64_t staged_bytes() const = 0;  // now

 protected:
  KvSender() = default;
};

}  // namespace kvserve
