// Payloads of the messages of a fetch: KV that one engine has computed, taken by another under a
// ticket. Encoders and decoders as in messages.h.
//
// The receiving side sends kFetch with a transfer id it has not used before on this connection; the
// sending side answers kFetchStarted, kChunk and kTransferEnd (messages.h), or kAbort at any point.
// A chunk's index is the number of its frame: tokens are cut at multiples of frame_tokens, layers
// at multiples of layers_per_frame, and frame `index` holds token frame index / groups and layer
// group index % groups, of groups = ceil(layers / layers_per_frame). Frames come in any order, each
// once; those before first_token, and those in which no layer holds a token that is wanted (all are
// before a window), do not come. kPing from the sending side, without an answer, says that it is
// alive and nothing is ready. After kTransferEnd the receiving side confirms with kRelease, same
// transfer id, once it has written everything; a kRelease of transfer id 0 says that it needs
// nothing (more) of the ticket. One fetch at a time per connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/geometry.h"

namespace kvserve {

inline constexpr std::size_t kMaxTicketBytes = 256;
// Largest payload of kFetch and kRelease: what a sending side reads.
inline constexpr std::size_t kMaxFetchBytes = kMaxTicketBytes + 64;

struct FetchOrder {
  std::string ticket;        // 1..kMaxTicketBytes bytes
  Fingerprint key;           // of all `tokens` tokens in their context (transfer/prefix_seed.h)
  std::uint32_t tokens = 0;  // 1..kMaxTokens; what the sender was given must have as many
  std::uint32_t first_token = 0;  // below tokens; the receiver holds those before it
  std::uint32_t deadline_ms = 0;  // from receipt; 0: none
  friend bool operator==(const FetchOrder&, const FetchOrder&) = default;
};

struct FetchStarted {
  std::uint32_t frame_tokens = 0;      // 1..65536
  std::uint32_t layers_per_frame = 0;  // 1..kMaxLayers
  std::uint32_t frames = 0;            // that will come
  std::string profile;                 // 1..kMaxProfileBytes printable characters
  std::string fallback;                // of frames unlike the calibration's texts; empty: none
  friend bool operator==(const FetchStarted&, const FetchStarted&) = default;
};

struct TicketRelease {
  std::string ticket;  // 1..kMaxTicketBytes bytes
  friend bool operator==(const TicketRelease&, const TicketRelease&) = default;
};

[[nodiscard]] Status Encode(const FetchOrder& message, std::vector<std::byte>& out);
[[nodiscard]] Status Encode(const FetchStarted& message, std::vector<std::byte>& out);
[[nodiscard]] Status Encode(const TicketRelease& message, std::vector<std::byte>& out);

[[nodiscard]] Result<FetchOrder> DecodeFetchOrder(std::span<const std::byte> bytes);
[[nodiscard]] Result<FetchStarted> DecodeFetchStarted(std::span<const std::byte> bytes);
[[nodiscard]] Result<TicketRelease> DecodeTicketRelease(std::span<const std::byte> bytes);

}  // namespace kvserve
