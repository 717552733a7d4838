// The shared secret of a pair of nodes: read from a file, used for HMAC only, never shown.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kvserve/error.h"

namespace kvserve {

using Mac = std::array<std::byte, 32>;  // HMAC-SHA256

// Default-constructed: no token. There is no way to get the secret out again; copies share it, and
// its memory is cleared with the last of them.
class AuthToken {
 public:
  // Reads the file and drops line ends at its end. kInvalidArgument (names the file, never its
  // content): cannot be read, not a regular file, empty, above 4096 bytes, or open to group or
  // others (chmod 600 is what would be right).
  [[nodiscard]] static Result<AuthToken> FromFile(const std::string& path);

  [[nodiscard]] bool empty() const { return secret_ == nullptr; }

  // kInternal if the cryptographic library fails or the token is empty.
  [[nodiscard]] Result<Mac> Sign(std::span<const std::byte> message) const;

  // Whether `text` is the token; false without one. Compares keyed digests, so that the time tells
  // nothing of the token.
  [[nodiscard]] bool Is(std::string_view text) const;

 private:
  class Secret;
  std::shared_ptr<const Secret> secret_;
};

// Takes the same time whatever the bytes are.
[[nodiscard]] bool EqualMacs(const Mac& a, const Mac& b);

// From the system's cryptographic generator. kInternal when it fails.
[[nodiscard]] Status FillRandom(std::span<std::byte> out);

}  // namespace kvserve
