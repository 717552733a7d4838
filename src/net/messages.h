// Payloads of the messages of a transfer. Encoders append and check; decoders take hostile bytes
// and fail with kCorruptData on any value out of range, any byte missing or left over.
//
// One transfer: the decode node sends kPrefillRequest with a transfer id it has not used before on
// this connection; the prefill node answers kPrefillStarted, kChunk (index 0, 1, ... in token
// order), kTransferEnd; or kAbort at any point. The decode node cancels with kAbort. Messages of
// several transfers may interleave; those of an id that is not (or no longer) known are dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/geometry.h"

namespace kvserve {

inline constexpr std::size_t kMaxProfileBytes = 4096;
inline constexpr std::size_t kMaxRequestTokens = std::size_t{1} << 20;
inline constexpr std::size_t kMaxAbortBytes = 1024;
// Largest payload of every message here but kChunk: a request with all of its tokens.
inline constexpr std::size_t kMaxControlBytes = 4 * kMaxRequestTokens + kMaxProfileBytes + 64;

struct PrefillRequest {
  std::string profile;               // short form or preset, at most kMaxProfileBytes
  std::vector<std::int32_t> tokens;  // the prompt, 1..kMaxRequestTokens, each 0 or more
  std::uint32_t chunk_tokens = 256;  // tokens per chunk, 1..kMaxRequestTokens
  std::uint32_t skip_tokens = 0;     // the receiver holds these already; at most tokens.size()
  std::uint32_t prompt_tokens = 0;   // length of the prompt when the request ends, >= tokens.size()
  std::uint32_t deadline_ms = 0;     // from receipt; 0: none
  friend bool operator==(const PrefillRequest&, const PrefillRequest&) = default;
};

struct PrefillStarted {
  std::uint32_t tokens = 0;  // KV of so many tokens will be sent
  std::uint32_t chunks = 0;  // in so many chunks
  double queue_s = 0.0;      // the request waited for the engine
  friend bool operator==(const PrefillStarted&, const PrefillStarted&) = default;
};

// Travels before the frame in a kChunk payload, in kChunkInfoBytes bytes.
struct ChunkInfo {
  TokenRange tokens;            // not empty
  std::uint64_t raw_bytes = 0;  // in the cache dtype, dropped tokens included
  double prefill_s = 0.0;       // engine time for these tokens
  double encode_s = 0.0;        // capture and encoding
  friend bool operator==(const ChunkInfo&, const ChunkInfo&) = default;
};
inline constexpr std::size_t kChunkInfoBytes = 32;

struct Chunk {
  ChunkInfo info;
  std::span<const std::byte> frame;  // points into the payload; not empty
};

struct TransferEnd {
  std::uint32_t chunks = 0;
  std::uint32_t tokens = 0;
  std::uint32_t fallbacks = 0;  // chunks not coded with the profile asked for
  std::uint64_t raw_bytes = 0;
  std::uint64_t frame_bytes = 0;
  double prefill_s = 0.0;
  double encode_s = 0.0;
  std::string profile;  // used
  friend bool operator==(const TransferEnd&, const TransferEnd&) = default;
};

struct Abort {
  ErrorCode code = ErrorCode::kCancelled;
  std::string message;  // one printable line, cut to kMaxAbortBytes
  friend bool operator==(const Abort&, const Abort&) = default;
};

// kPing and kPong (which returns the ping's value).
struct Ping {
  std::uint64_t value = 0;
  friend bool operator==(const Ping&, const Ping&) = default;
};

// Encoders append to `out`; kInvalidArgument when a field is outside its range.
[[nodiscard]] Status Encode(const PrefillRequest& message, std::vector<std::byte>& out);
[[nodiscard]] Status Encode(const PrefillStarted& message, std::vector<std::byte>& out);
[[nodiscard]] Status Encode(const TransferEnd& message, std::vector<std::byte>& out);
[[nodiscard]] Status Encode(const Abort& message, std::vector<std::byte>& out);
[[nodiscard]] Status Encode(const Ping& message, std::vector<std::byte>& out);

[[nodiscard]] Result<PrefillRequest> DecodePrefillRequest(std::span<const std::byte> bytes);
[[nodiscard]] Result<PrefillStarted> DecodePrefillStarted(std::span<const std::byte> bytes);
[[nodiscard]] Result<TransferEnd> DecodeTransferEnd(std::span<const std::byte> bytes);
[[nodiscard]] Result<Abort> DecodeAbort(std::span<const std::byte> bytes);
[[nodiscard]] Result<Ping> DecodePing(std::span<const std::byte> bytes);

// A chunk is built in place, so that frame bytes are not copied: BeginChunk empties `payload` and
// reserves the info's place, EncodeFrame appends the frame, FinishChunk fills in the info
// (kInvalidArgument: range, or no frame).
void BeginChunk(std::vector<std::byte>& payload);
[[nodiscard]] Status FinishChunk(const ChunkInfo& info, std::span<std::byte> payload);
[[nodiscard]] Result<Chunk> DecodeChunk(std::span<const std::byte> payload);

}  // namespace kvserve
