#include "net/fetch_messages.h"

#include <cstring>

#include "base/byte_io.h"
#include "base/try.h"
#include "net/messages.h"
#include "net/wire_fields.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kMaxFrameTokens = 65536;

// A sender's fault is kInvalidArgument, a peer's kCorruptData.
Status CheckTicket(const std::string& ticket, ErrorCode code) {
  if (!ticket.empty() && ticket.size() <= kMaxTicketBytes) return {};
  return MakeError(code, "ticket of " + std::to_string(ticket.size()) + " bytes is outside 1.." +
                             std::to_string(kMaxTicketBytes));
}

Status Check(const FetchOrder& message, ErrorCode code) {
  KVSERVE_TRY(CheckTicket(message.ticket, code));
  if (message.tokens < 1 || message.tokens > kMaxTokens || message.first_token >= message.tokens) {
    return MakeError(code, "fetch: tokens " + std::to_string(message.first_token) + ".." +
                               std::to_string(message.tokens) + " is no range within 0.." +
                               std::to_string(kMaxTokens));
  }
  return {};
}

Status Check(const FetchStarted& message, ErrorCode code) {
  if (message.frame_tokens < 1 || message.frame_tokens > kMaxFrameTokens ||
      message.layers_per_frame < 1 || message.layers_per_frame > kMaxLayers) {
    return MakeError(code, "fetch started: frames of " + std::to_string(message.frame_tokens) +
                               " tokens and " + std::to_string(message.layers_per_frame) +
                               " layers are outside 1.." + std::to_string(kMaxFrameTokens) +
                               " and 1.." + std::to_string(kMaxLayers));
  }
  if (message.profile.empty()) return MakeError(code, "fetch started: there is no profile");
  for (const std::string& profile : {message.profile, message.fallback}) {
    if (profile.size() <= kMaxProfileBytes && IsPrintable(profile)) continue;
    return MakeError(code, "fetch started: a profile is not 1..4096 bytes of printable ASCII");
  }
  return {};
}

}  // namespace

Status Encode(const FetchOrder& message, std::vector<std::byte>& out) {
  KVSERVE_TRY(Check(message, ErrorCode::kInvalidArgument));
  ByteWriter writer(out);
  PutText(writer, message.ticket);
  writer.PutBytes(std::as_bytes(std::span(message.key.bytes)));
  writer.Put(message.tokens);
  writer.Put(message.first_token);
  writer.Put(message.deadline_ms);
  return {};
}

Result<FetchOrder> DecodeFetchOrder(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  FetchOrder message;
  KVSERVE_ASSIGN(message.ticket, GetText(reader, kMaxTicketBytes));
  KVSERVE_ASSIGN(const auto key, reader.GetBytes(message.key.bytes.size()));
  std::memcpy(message.key.bytes.data(), key.data(), key.size());
  KVSERVE_ASSIGN(message.tokens, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.first_token, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.deadline_ms, reader.Get<std::uint32_t>());
  KVSERVE_TRY(CheckConsumed(reader, "fetch"));
  KVSERVE_TRY(Check(message, ErrorCode::kCorruptData));
  return message;
}

Status Encode(const FetchStarted& message, std::vector<std::byte>& out) {
  KVSERVE_TRY(Check(message, ErrorCode::kInvalidArgument));
  ByteWriter writer(out);
  writer.Put(message.frame_tokens);
  writer.Put(message.layers_per_frame);
  writer.Put(message.frames);
  PutText(writer, message.profile);
  // Left out where there is none: receivers that know of no fallback read this too.
  if (!message.fallback.empty()) PutText(writer, message.fallback);
  return {};
}

Result<FetchStarted> DecodeFetchStarted(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  FetchStarted message;
  KVSERVE_ASSIGN(message.frame_tokens, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.layers_per_frame, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.frames, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.profile, GetText(reader, kMaxProfileBytes));
  if (reader.remaining() > 0) {
    KVSERVE_ASSIGN(message.fallback, GetText(reader, kMaxProfileBytes));
    if (message.fallback.empty()) {
      return MakeError(ErrorCode::kCorruptData, "fetch started: the fallback profile is empty");
    }
  }
  KVSERVE_TRY(CheckConsumed(reader, "fetch started"));
  KVSERVE_TRY(Check(message, ErrorCode::kCorruptData));
  return message;
}

Status Encode(const TicketRelease& message, std::vector<std::byte>& out) {
  KVSERVE_TRY(CheckTicket(message.ticket, ErrorCode::kInvalidArgument));
  ByteWriter writer(out);
  PutText(writer, message.ticket);
  return {};
}

Result<TicketRelease> DecodeTicketRelease(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  TicketRelease message;
  KVSERVE_ASSIGN(message.ticket, GetText(reader, kMaxTicketBytes));
  KVSERVE_TRY(CheckConsumed(reader, "release"));
  KVSERVE_TRY(CheckTicket(message.ticket, ErrorCode::kCorruptData));
  return message;
}

}  // namespace kvserve
