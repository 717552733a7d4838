// "host:port" as written on the command line, and what counts as loopback.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kvserve/error.h"

namespace kvserve {

struct HostPort {
  std::string host = "127.0.0.1";  // name or numeric address, IPv6 without brackets
  std::uint16_t port = 0;          // 0: the system chooses (listeners only)

  [[nodiscard]] std::string text() const;  // "host:port", "[v6]:port"
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// Parses "127.0.0.1:7000", "[::1]:7000" or "name:0". kInvalidArgument names the text and the forms.
[[nodiscard]] Result<HostPort> ParseHostPort(std::string_view text);

// True for 127.0.0.0/8, ::1, their v4-mapped form and "localhost"; any other name counts as remote,
// whatever it resolves to.
[[nodiscard]] bool IsLoopback(const HostPort& address);

}  // namespace kvserve
