// Any payload as any message of the node protocol; what decodes encodes to the same bytes.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "decode_contract.h"
#include "net/fetch_messages.h"
#include "net/handshake.h"
#include "net/message.h"
#include "net/messages.h"
#include "net/refusal.h"

namespace kvserve::fuzzing {
namespace {

using Bytes = std::span<const std::byte>;

template <typename T>
bool Accepted(const Result<T>& decoded) {
  if (!decoded && !AllowedError(decoded.error().code)) {
    Fail("bytes caused " + std::string(ErrorName(decoded.error().code)) + ": " +
         decoded.error().message);
  }
  return decoded.has_value();
}

template <typename T, typename Encoder>
void CheckSameBytes(const Result<T>& decoded, Bytes input, Encoder encode) {
  if (!Accepted(decoded)) return;
  std::vector<std::byte> again;
  if (!encode(*decoded, again)) Fail("a decoded message cannot be encoded");
  if (!std::ranges::equal(again, input)) Fail("a decoded message encodes to other bytes");
}

void CheckHeader(Bytes input) {
  if (input.size() < kMessageHeaderBytes) return;
  const auto bytes = input.first<kMessageHeaderBytes>();
  const auto header = UnpackHeader(bytes, kMaxControlBytes);
  if (Accepted(header) && !std::ranges::equal(PackHeader(*header), bytes)) {
    Fail("a header packs to other bytes");
  }
}

void Check(std::uint8_t kind, Bytes input) {
  const auto encode = [](const auto& message, auto& out) { return Encode(message, out); };
  switch (kind % 12) {
    case 0: return CheckSameBytes(DecodePrefillRequest(input), input, encode);
    case 1: return CheckSameBytes(DecodePrefillStarted(input), input, encode);
    case 2: return CheckSameBytes(DecodeTransferEnd(input), input, encode);
    case 3: return CheckSameBytes(DecodePing(input), input, encode);
    case 4: return CheckSameBytes(DecodeHello(input), input, EncodeHello);
    case 5: return void(Accepted(DecodeAbort(input)));  // its text is made printable
    case 6: return void(Accepted(DecodeRefusal(input)));
    case 7: return void(Accepted(DecodeChunk(input)));
    case 8: return CheckHeader(input);
    case 9: return CheckSameBytes(DecodeFetchOrder(input), input, encode);
    case 10: return CheckSameBytes(DecodeFetchStarted(input), input, encode);
    default: return CheckSameBytes(DecodeTicketRelease(input), input, encode);
  }
}

}  // namespace
}  // namespace kvserve::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  kvserve::fuzzing::Check(data[0], std::as_bytes(std::span(data, size)).subspan(1));
  return 0;
}
