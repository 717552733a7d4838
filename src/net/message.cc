#include "net/message.h"

#include <cstring>
#include <string>

#include "base/byte_io.h"
#include "base/hash.h"
#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::size_t kChecksumOffset = kMessageHeaderBytes - sizeof(std::uint64_t);

}  // namespace

bool IsKnown(MessageType type) {
  switch (type) {
    case MessageType::kGreeting:
    case MessageType::kProof:
    case MessageType::kHello:
    case MessageType::kRefusal:
    case MessageType::kPrefillRequest:
    case MessageType::kPrefillStarted:
    case MessageType::kChunk:
    case MessageType::kTransferEnd:
    case MessageType::kAbort:
    case MessageType::kFetch:
    case MessageType::kFetchStarted:
    case MessageType::kRelease:
    case MessageType::kPing:
    case MessageType::kPong: return true;
  }
  return false;
}

MessageHeaderBytes PackHeader(const MessageHeader& header) {
  MessageHeaderBytes bytes{};
  std::size_t at = 0;
  const auto put = [&](auto value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
    at += sizeof(value);
  };
  put(kMessageMagic);
  put(static_cast<std::uint8_t>(header.type));
  put(std::uint8_t{0});
  put(std::uint16_t{0});
  put(header.index);
  put(std::uint32_t{0});
  put(header.transfer_id);
  put(header.epoch);
  put(header.payload_bytes);
  put(header.payload_checksum);
  put(Hash64(std::span(bytes).first<kChecksumOffset>()));
  return bytes;
}

Result<MessageHeader> UnpackHeader(std::span<const std::byte, kMessageHeaderBytes> bytes,
                                   std::size_t max_payload) {
  ByteReader reader(bytes);
  KVSERVE_ASSIGN(const auto magic, reader.Get<std::uint32_t>());
  if (magic != kMessageMagic) {
    return MakeError(ErrorCode::kCorruptData,
                     "message magic is wrong: the peer speaks another protocol");
  }
  MessageHeader header;
  KVSERVE_ASSIGN(const auto type, reader.Get<std::uint8_t>());
  header.type = static_cast<MessageType>(type);
  KVSERVE_ASSIGN(const auto flags, reader.Get<std::uint8_t>());
  KVSERVE_ASSIGN(const auto reserved_a, reader.Get<std::uint16_t>());
  KVSERVE_ASSIGN(header.index, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(const auto reserved_b, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(header.transfer_id, reader.Get<std::uint64_t>());
  KVSERVE_ASSIGN(header.epoch, reader.Get<std::uint64_t>());
  KVSERVE_ASSIGN(header.payload_bytes, reader.Get<std::uint64_t>());
  KVSERVE_ASSIGN(header.payload_checksum, reader.Get<std::uint64_t>());
  KVSERVE_ASSIGN(const auto checksum, reader.Get<std::uint64_t>());
  if (checksum != Hash64(bytes.first<kChecksumOffset>())) {
    return MakeError(ErrorCode::kCorruptData, "message header does not match its checksum");
  }
  if (!IsKnown(header.type)) {
    return MakeError(ErrorCode::kCorruptData,
                     "message type " + std::to_string(type) + " is unknown");
  }
  if (flags != 0 || reserved_a != 0 || reserved_b != 0) {
    return MakeError(ErrorCode::kCorruptData, "message header has reserved bits set");
  }
  if (header.payload_bytes > max_payload) {
    return MakeError(ErrorCode::kCorruptData,
                     "message payload of " + std::to_string(header.payload_bytes) +
                         " bytes is above the limit of " + std::to_string(max_payload));
  }
  return header;
}

}  // namespace kvserve
