#include "net/messages.h"

#include <algorithm>
#include <cstring>

#include "base/byte_io.h"
#include "base/try.h"
#include "net/wire_fields.h"

namespace kvserve {
namespace {

// The same checks serve both directions: a sender's fault is kInvalidArgument, a peer's
// kCorruptData.
Status Check(const PrefillRequest& message, ErrorCode code) {
  const auto fail = [&](const std::string& what) {
    return MakeError(code, "prefill request: " + what);
  };
  const std::size_t count = message.tokens.size();
  if (message.profile.size() > kMaxProfileBytes) return fail("the profile is above 4096 bytes");
  if (!IsPrintable(message.profile)) return fail("the profile is not printable ASCII");
  if (count < 1 || count > kMaxRequestTokens) {
    return fail("tokens " + std::to_string(count) + " is outside 1.." +
                std::to_string(kMaxRequestTokens));
  }
  const auto negative = [](std::int32_t token) { return token < 0; };
  if (std::any_of(message.tokens.begin(), message.tokens.end(), negative)) {
    return fail("a token is negative");
  }
  if (message.chunk_tokens < 1 || message.chunk_tokens > kMaxRequestTokens) {
    return fail("chunk_tokens " + std::to_string(message.chunk_tokens) + " is outside 1.." +
                std::to_string(kMaxRequestTokens));
  }
  if (message.skip_tokens > count) {
    return fail("skip_tokens " + std::to_string(message.skip_tokens) + " is above tokens " +
                std::to_string(count));
  }
  if (message.prompt_tokens < count || message.prompt_tokens > kMaxTokens) {
    return fail("prompt_tokens " + std::to_string(message.prompt_tokens) + " is outside " +
                std::to_string(count) + ".." + std::to_string(kMaxTokens));
  }
  return {};
}

Status Check(const PrefillStarted& message, ErrorCode code) {
  if (message.chunks > message.tokens || !IsDuration(message.queue_s)) {
    return MakeError(code, "prefill started: chunks above tokens, or a time below 0");
  }
  return {};
}

Status Check(const ChunkInfo& info, ErrorCode code) {
  if (info.tokens.begin >= info.tokens.end || info.tokens.end > kMaxTokens) {
    return MakeError(code, "chunk: tokens " + std::to_string(info.tokens.begin) + ".." +
                               std::to_string(info.tokens.end) + " is no range");
  }
  if (!IsDuration(info.prefill_s) || !IsDuration(info.encode_s)) {
    return MakeError(code, "chunk: a time is not a duration");
  }
  return {};
}

Status Check(const TransferEnd& message, ErrorCode code) {
  if (message.profile.size() > kMaxProfileBytes || !IsPrintable(message.profile)) {
    return MakeError(code, "transfer end: the profile is not 4096 bytes of printable ASCII");
  }
  if (message.fallbacks > message.chunks) {
    return MakeError(code, "transfer end: fallbacks above chunks");
  }
  if (!IsDuration(message.prefill_s) || !IsDuration(message.encode_s)) {
    return MakeError(code, "transfer end: a time is not a duration");
  }
  return {};
}

}  // namespace

// ---- request -----------------------------------------------------------------------------------

Status Encode(const PrefillRequest& message, std::vector<std::byte>& out) {
  KVSERVE_TRY(Check(message, ErrorCode::kInvalidArgument));
  ByteWriter writer(out);
  PutText(writer, message.profile);
  writer.Put(message.chunk_tokens);
  writer.Put(message.skip_tokens);
  writer.Put(message.prompt_tokens);
  writer.Put(message.deadline_ms);
  writer.Put(static_cast<std::uint32_t>(message.tokens.size()));
  writer.PutBytes(std::as_bytes(std::span(message.tokens)));
  return {};
}

Result<PrefillRequest> DecodePrefillRequest(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  PrefillRequest message;
  KVSERVE_ASSIGN(message.profile, GetText(reader, kMaxProfileBytes));
  KVSERVE_ASSIGN(message.chunk_tokens, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.skip_tokens, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.prompt_tokens, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.deadline_ms, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(const auto count, reader.Get<std::uint32_t>());
  if (count > kMaxRequestTokens || reader.remaining() != count * sizeof(std::int32_t)) {
    return MakeError(ErrorCode::kCorruptData,
                     "prefill request: " + std::to_string(reader.remaining()) + " bytes left for " +
                         std::to_string(count) + " tokens");
  }
  KVSERVE_ASSIGN(const auto tokens, reader.GetBytes(reader.remaining()));
  message.tokens.resize(count);
  if (count > 0) std::memcpy(message.tokens.data(), tokens.data(), tokens.size());
  KVSERVE_TRY(Check(message, ErrorCode::kCorruptData));
  return message;
}

Status Encode(const PrefillStarted& message, std::vector<std::byte>& out) {
  KVSERVE_TRY(Check(message, ErrorCode::kInvalidArgument));
  ByteWriter writer(out);
  writer.Put(message.tokens);
  writer.Put(message.chunks);
  writer.Put(message.queue_s);
  return {};
}

Result<PrefillStarted> DecodePrefillStarted(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  PrefillStarted message;
  KVSERVE_ASSIGN(message.tokens, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.chunks, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.queue_s, reader.Get<double>());
  KVSERVE_TRY(CheckConsumed(reader, "prefill started"));
  KVSERVE_TRY(Check(message, ErrorCode::kCorruptData));
  return message;
}

// ---- chunk -------------------------------------------------------------------------------------

void BeginChunk(std::vector<std::byte>& payload) {
  payload.assign(kChunkInfoBytes, std::byte{0});
}

Status FinishChunk(const ChunkInfo& info, std::span<std::byte> payload) {
  KVSERVE_TRY(Check(info, ErrorCode::kInvalidArgument));
  if (payload.size() <= kChunkInfoBytes) {
    return MakeError(ErrorCode::kInvalidArgument, "chunk: no frame after the info");
  }
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  writer.Put(info.tokens.begin);
  writer.Put(info.tokens.end);
  writer.Put(info.raw_bytes);
  writer.Put(info.prefill_s);
  writer.Put(info.encode_s);
  static_assert(kChunkInfoBytes == 2 * sizeof(std::uint32_t) + 3 * sizeof(std::uint64_t));
  std::memcpy(payload.data(), bytes.data(), kChunkInfoBytes);
  return {};
}

Result<Chunk> DecodeChunk(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Chunk chunk;
  KVSERVE_ASSIGN(chunk.info.tokens.begin, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(chunk.info.tokens.end, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(chunk.info.raw_bytes, reader.Get<std::uint64_t>());
  KVSERVE_ASSIGN(chunk.info.prefill_s, reader.Get<double>());
  KVSERVE_ASSIGN(chunk.info.encode_s, reader.Get<double>());
  KVSERVE_TRY(Check(chunk.info, ErrorCode::kCorruptData));
  KVSERVE_ASSIGN(chunk.frame, reader.GetBytes(reader.remaining()));
  if (chunk.frame.empty())
    return MakeError(ErrorCode::kCorruptData, "chunk: no frame after the info");
  return chunk;
}

// ---- end, abort, ping --------------------------------------------------------------------------

Status Encode(const TransferEnd& message, std::vector<std::byte>& out) {
  KVSERVE_TRY(Check(message, ErrorCode::kInvalidArgument));
  ByteWriter writer(out);
  writer.Put(message.chunks);
  writer.Put(message.tokens);
  writer.Put(message.fallbacks);
  writer.Put(message.raw_bytes);
  writer.Put(message.frame_bytes);
  writer.Put(message.prefill_s);
  writer.Put(message.encode_s);
  PutText(writer, message.profile);
  return {};
}

Result<TransferEnd> DecodeTransferEnd(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  TransferEnd message;
  KVSERVE_ASSIGN(message.chunks, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.tokens, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.fallbacks, reader.Get<std::uint32_t>());
  KVSERVE_ASSIGN(message.raw_bytes, reader.Get<std::uint64_t>());
  KVSERVE_ASSIGN(message.frame_bytes, reader.Get<std::uint64_t>());
  KVSERVE_ASSIGN(message.prefill_s, reader.Get<double>());
  KVSERVE_ASSIGN(message.encode_s, reader.Get<double>());
  KVSERVE_ASSIGN(message.profile, GetText(reader, kMaxProfileBytes));
  KVSERVE_TRY(CheckConsumed(reader, "transfer end"));
  KVSERVE_TRY(Check(message, ErrorCode::kCorruptData));
  return message;
}

// Our own texts are cut and cleaned rather than refused: an abort must always get out.
Status Encode(const Abort& message, std::vector<std::byte>& out) {
  ByteWriter writer(out);
  writer.Put(static_cast<std::int32_t>(message.code));
  PutText(writer, Printable(std::string_view(message.message).substr(0, kMaxAbortBytes)));
  return {};
}

Result<Abort> DecodeAbort(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Abort message;
  KVSERVE_ASSIGN(const auto code, reader.Get<std::int32_t>());
  if (!IsKnownError(code)) {
    return MakeError(ErrorCode::kCorruptData,
                     "abort: error code " + std::to_string(code) + " is unknown");
  }
  message.code = static_cast<ErrorCode>(code);
  KVSERVE_ASSIGN(const std::string text, GetText(reader, kMaxAbortBytes));
  message.message = Printable(text);
  KVSERVE_TRY(CheckConsumed(reader, "abort"));
  return message;
}

Status Encode(const Ping& message, std::vector<std::byte>& out) {
  ByteWriter(out).Put(message.value);
  return {};
}

Result<Ping> DecodePing(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Ping message;
  KVSERVE_ASSIGN(message.value, reader.Get<std::uint64_t>());
  KVSERVE_TRY(CheckConsumed(reader, "ping"));
  return message;
}

}  // namespace kvserve
