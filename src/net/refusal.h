// Why a handshake ends: a field and both sides' values, so that each side can say "here" and
// "there".
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvserve/error.h"

namespace kvserve {

struct Hello;

// The layout is the same in every protocol version.
struct Refusal {
  ErrorCode code = ErrorCode::kMismatch;
  std::string field;         // "protocol"
  std::string sender_value;  // of the side that refuses; empty with the other: field says it all
  std::string receiver_value;
};

inline constexpr std::size_t kMaxRefusalBytes = 4 + 3 * 257;

// Texts are cut to 255 bytes.
void EncodeRefusal(const Refusal& refusal, std::vector<std::byte>& out);
// Characters that are not printable ASCII become '?', since the text ends up in logs.
[[nodiscard]] Result<Refusal> DecodeRefusal(std::span<const std::byte> bytes);

// "handshake: protocol 2 here, 1 there", as the refusing side sees it and as the refused side does.
[[nodiscard]] Error SenderError(const Refusal& refusal);
[[nodiscard]] Error ReceiverError(const Refusal& refusal);

// The first reason for which two nodes cannot work together. Symmetric: both sides find the same
// one.
[[nodiscard]] std::optional<Refusal> FindConflict(const Hello& local, const Hello& peer);

}  // namespace kvserve
