#include "net/refusal.h"

#include "net/wire_fields.h"

namespace kvserve {
namespace {

constexpr std::size_t kMaxText = 255;

Error Compose(const Refusal& refusal, const std::string& here, const std::string& there) {
  std::string text = "handshake: " + refusal.field;
  if (!here.empty() || !there.empty()) text += " " + here + " here, " + there + " there";
  return {refusal.code, std::move(text)};
}

}  // namespace

void EncodeRefusal(const Refusal& refusal, std::vector<std::byte>& out) {
  ByteWriter writer(out);
  writer.Put(static_cast<std::int32_t>(refusal.code));
  for (const auto* text : {&refusal.field, &refusal.sender_value, &refusal.receiver_value}) {
    PutText(writer, std::string_view(*text).substr(0, kMaxText));
  }
}

Result<Refusal> DecodeRefusal(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Refusal refusal;
  KVSERVE_ASSIGN(const auto code, reader.Get<std::int32_t>());
  // A later version may have more codes; its words still tell the reason.
  refusal.code = IsKnownError(code) ? static_cast<ErrorCode>(code) : ErrorCode::kMismatch;
  for (auto* text : {&refusal.field, &refusal.sender_value, &refusal.receiver_value}) {
    KVSERVE_ASSIGN(const std::string value, GetText(reader, kMaxText));
    *text = Printable(value);
  }
  KVSERVE_TRY(CheckConsumed(reader, "refusal"));
  return refusal;
}

Error SenderError(const Refusal& refusal) {
  return Compose(refusal, refusal.sender_value, refusal.receiver_value);
}

Error ReceiverError(const Refusal& refusal) {
  Error error = Compose(refusal, refusal.receiver_value, refusal.sender_value);
  error.message += " (refused by the peer)";
  return error;
}

}  // namespace kvserve
