// One message of the node protocol: type, header layout and checksum. Pure bytes, no sockets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvserve/error.h"

namespace kvserve {

// Values are on the wire: never renumber, never reuse.
enum class MessageType : std::uint8_t {
  kGreeting = 1,  // handshake.h: 1 to 4
  kProof = 2,
  kHello = 3,
  kRefusal = 4,
  kPrefillRequest = 16,  // messages.h: 16 to 20, 24, 25
  kPrefillStarted = 17,
  kChunk = 18,
  kTransferEnd = 19,
  kAbort = 20,
  kFetch = 21,  // fetch_messages.h: 21 to 23
  kFetchStarted = 22,
  kRelease = 23,
  kPing = 24,
  kPong = 25,
};
[[nodiscard]] bool IsKnown(MessageType type);

// A received message. `transfer_id` and `index` mean what the type says; `epoch` is the sender's
// process (random per start), 0 before the handshake.
struct Message {
  MessageType type = MessageType::kPing;
  std::uint64_t transfer_id = 0;
  std::uint64_t epoch = 0;
  std::uint32_t index = 0;
  std::vector<std::byte> payload;

  // What a link-rate estimate needs. (wire_bytes - backlog_bytes) / receive_s is the rate at which
  // the rest of the message came in; a message that lay complete in the kernel says nothing.
  std::uint64_t wire_bytes = 0;     // header and payload
  std::uint64_t backlog_bytes = 0;  // of these, already in the kernel when receiving began
  double receive_s = 0.0;           // from the first byte seen to the last
};

// Header, little-endian, 56 bytes: magic u32, type u8, flags u8 (0), u16 0, index u32, u32 0,
// transfer_id u64, epoch u64, payload_bytes u64, payload checksum u64, header checksum u64 (XXH3-64
// of the 48 bytes before it, so of the payload checksum too). The layout and the greeting's first
// field are the same in every protocol version, so that versions can refuse each other in words.
inline constexpr std::size_t kMessageHeaderBytes = 56;
inline constexpr std::uint32_t kMessageMagic = 0x314E564BU;  // "KVN1"
using MessageHeaderBytes = std::array<std::byte, kMessageHeaderBytes>;

struct MessageHeader {
  MessageType type = MessageType::kPing;
  std::uint64_t transfer_id = 0;
  std::uint64_t epoch = 0;
  std::uint32_t index = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t payload_checksum = 0;
};

[[nodiscard]] MessageHeaderBytes PackHeader(const MessageHeader& header);

// kCorruptData names the field: magic, checksum, type, reserved bits, or a payload above
// `max_payload`. Nothing is allocated.
[[nodiscard]] Result<MessageHeader> UnpackHeader(
    std::span<const std::byte, kMessageHeaderBytes> bytes, std::size_t max_payload);

}  // namespace kvserve
