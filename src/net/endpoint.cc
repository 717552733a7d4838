#include "net/endpoint.h"

#include <asio/ip/address.hpp>
#include <charconv>
#include <cstddef>

namespace kvserve {
namespace {

tl::unexpected<Error> BadAddress(std::string_view text, const char* why) {
  return MakeError(ErrorCode::kInvalidArgument,
                   "address '" + std::string(text.substr(0, 80)) + "': " + why +
                       "; right are 127.0.0.1:7000, [::1]:7000 or name:0");
}

}  // namespace

std::string HostPort::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<HostPort> ParseHostPort(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return BadAddress(text, "the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) return BadAddress(text, "']' is missing");
    host = host.substr(1, host.size() - 2);
    asio::error_code bad;
    asio::ip::make_address_v6(std::string(host), bad);
    if (bad) return BadAddress(text, "no IPv6 address between the brackets");
  } else if (host.find(':') != std::string_view::npos) {
    return BadAddress(text, "an IPv6 address needs brackets");
  }
  if (host.empty()) return BadAddress(text, "the host is missing");
  for (const char c : host) {
    if (c <= ' ' || c == 0x7F) return BadAddress(text, "a blank or control character");
  }
  HostPort result{std::string(host), 0};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
  if (error != std::errc() || end != port.data() + port.size()) {
    return BadAddress(text, "the port is not a number from 0 to 65535");
  }
  return result;
}

bool IsLoopback(const HostPort& address) {
  asio::error_code bad;
  const auto ip = asio::ip::make_address(address.host, bad);
  if (bad) return address.host == "localhost";
  if (ip.is_v4()) return ip.to_v4().is_loopback();
  const auto v6 = ip.to_v6();
  if (!v6.is_v4_mapped()) return v6.is_loopback();
  return asio::ip::make_address_v4(asio::ip::v4_mapped, v6).is_loopback();
}

}  // namespace kvserve
