// The shared secret of a pair of nodes: read from a file, used for HMAC only, never shown.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kvserve/error.h"

namespace kvserve {

using Mac = std::array<std::byte, 32>;  // HMAC-SHA256

// Default-constructed: no token. There is no way to get the secret out again; memory is cleared on
// destruction.
class AuthToken {
 public:
  AuthToken() = default;
  ~AuthToken();
  AuthToken(const AuthToken&) = default;
  AuthToken& operator=(const AuthToken&) = default;
  AuthToken(AuthToken&&) noexcept = default;
  AuthToken& operator=(AuthToken&&) noexcept = default;

  // Reads the file and drops line ends at its end. kInvalidArgument (names the file, never its
  // content): cannot be read, not a regular file, empty, above 4096 bytes, or readable, writable or
  // executable by group or others (chmod 600 is what would be right).
  [[nodiscard]] static Result<AuthToken> FromFile(const std::string& path);

  [[nodiscard]] bool empty() const { return secret_.empty(); }

  // kInternal if the cryptographic library fails or the token is empty.
  [[nodiscard]] Result<Mac> Sign(std::span<const std::byte> message) const;

 private:
  std::vector<unsigned char> secret_;
};

// Takes the same time whatever the bytes are.
[[nodiscard]] bool EqualMacs(const Mac& a, const Mac& b);

// From the system's cryptographic generator. kInternal when it fails.
[[nodiscard]] Status FillRandom(std::span<std::byte> out);

}  // namespace kvserve
