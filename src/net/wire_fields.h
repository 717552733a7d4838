// Fields that several messages share: bounded texts safe for a log line, error codes, times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/byte_io.h"
#include "base/try.h"
#include "kvserve/error.h"

namespace kvserve {

[[nodiscard]] inline bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

[[nodiscard]] inline std::string Printable(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  return result;
}

// u16 length and bytes. The caller has checked or cut the text to its limit (at most 65535).
inline void PutText(ByteWriter& out, std::string_view text) {
  out.Put(static_cast<std::uint16_t>(text.size()));
  out.PutBytes(std::as_bytes(std::span(text.data(), text.size())));
}

[[nodiscard]] inline Result<std::string> GetText(ByteReader& in, std::size_t max_bytes) {
  KVSERVE_ASSIGN(const auto size, in.Get<std::uint16_t>());
  if (size > max_bytes) {
    return MakeError(ErrorCode::kCorruptData, "text of " + std::to_string(size) +
                                                  " bytes is above the limit of " +
                                                  std::to_string(max_bytes));
  }
  KVSERVE_ASSIGN(const auto bytes, in.GetBytes(size));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

[[nodiscard]] inline bool IsKnownError(std::int32_t code) {
  return code >= static_cast<std::int32_t>(ErrorCode::kInternal) &&
         code <= static_cast<std::int32_t>(ErrorCode::kPermissionDenied);
}

// Seconds that somebody measured: finite, not negative, below 30 years.
[[nodiscard]] inline bool IsDuration(double seconds) {
  return seconds >= 0 && seconds < 1e9;
}

[[nodiscard]] inline Status CheckConsumed(const ByteReader& in, const char* what) {
  if (in.remaining() == 0) return {};
  return MakeError(ErrorCode::kCorruptData,
                   std::string(what) + ": " + std::to_string(in.remaining()) + " bytes left over");
}

}  // namespace kvserve
