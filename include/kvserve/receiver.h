// The receiving side between two engines: takes the KV of a ticket from a sender, decodes it and
// writes it into the request's blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvserve/calibration.h"
#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "kvserve/paged.h"

namespace kvserve {

struct ReceiverOptions {
  std::string token_file;          // shared secret, mode 600; empty: none
  Fingerprint model;               // senders of another model are refused
  std::uint32_t threads = 1;       // that decode and write, 1..64
  std::uint32_t connections = 16;  // transfers at the same time; more wait in order
  double stall_s = 30.0;           // no byte from the sender for so long: the fetch has failed
  std::shared_ptr<const CalibrationArtefact> calibration;  // for frames that name one
};

struct FetchRequest {
  std::string id;       // the caller's, unique among running fetches
  std::string address;  // the sender's host:port
  std::string ticket;
  std::vector<std::int32_t> tokens;  // as offered
  std::string context;               // as offered
  TokenRange wanted;                 // what is not held already; ends at tokens.size()
  std::vector<BlockTable> tables;    // [group]: blocks of this request; must stay its own until the
                                     // report is taken
  double deadline_s = 120.0;         // from now, waiting for a connection included
};

struct FetchReport {
  std::string id;
  std::string ticket;
  std::optional<Error> error;  // set: the blocks hold nothing that may be used
  std::string profile;         // as the sender tells it
  std::uint32_t tokens = 0;    // written per full layer
  std::uint32_t frames = 0;
  std::uint32_t lossless_fallbacks = 0;  // frames that the profile could not code or made larger
  std::uint32_t drift_fallbacks = 0;     // frames by the fallback that the sender has announced
  std::uint64_t raw_bytes = 0;
  std::uint64_t wire_bytes = 0;
  double queue_s = 0.0;   // before a connection was free and made
  double wire_s = 0.0;    // receiving
  double decode_s = 0.0;  // decoding and writing, summed over threads
  double total_s = 0.0;
  double link_bytes_per_s = 0.0;  // 0: nothing was received for long enough to tell
};

// Every fetch ends in exactly one report, within its deadline; after that no block of it is
// written. All calls are thread-safe and none waits for the network.
class KvReceiver {
 public:
  // `cache` is copied; its memory outlives the receiver. kInvalidArgument, kResourceExhausted.
  [[nodiscard]] static Result<std::unique_ptr<KvReceiver>> Start(const PagedCache& cache,
                                                                 const ReceiverOptions& options);
  // Cancels what runs and waits for its writes.
  virtual ~KvReceiver() = default;
  KvReceiver(const KvReceiver&) = delete;
  KvReceiver& operator=(const KvReceiver&) = delete;

  // kInvalidArgument: id in use, range, tables, address.
  [[nodiscard]] virtual Status Fetch(FetchRequest request) = 0;

  // Its report comes with kCancelled, soon, unless it has ended already. The sender is told that
  // the ticket is not needed, as after every fetch that fails while the sender can be reached.
  virtual void Cancel(std::string_view id) = 0;

  // Tells a sender that nothing of this ticket is needed (all tokens are held already). Best
  // effort: the lease does the rest.
  virtual void Release(const std::string& address, const std::string& ticket) = 0;

  // Fetches that have ended since the last call, each once.
  [[nodiscard]] virtual std::vector<FetchReport> TakeReports() = 0;

  [[nodiscard]] virtual std::size_t running() const = 0;  // waiting ones included

 protected:
  KvReceiver() = default;
};

}  // namespace kvserve
