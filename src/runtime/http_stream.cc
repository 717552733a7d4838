#include "runtime/http_stream.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>

namespace kvserve {
namespace {

constexpr double kReadSeconds = 10.0;  // without a byte
constexpr double kWriteSeconds = 30.0;

using NameOfSocket = int (*)(int, sockaddr*, socklen_t*);

void IpAndPort(NameOfSocket name_of, socket_t socket, std::string& ip, int& port) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST];
  char service[NI_MAXSERV];
  if (name_of(socket, generic, &length) != 0 ||
      ::getnameinfo(generic, length, host, sizeof(host), service, sizeof(service),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  ip = host;
  const std::string_view digits(service);
  std::from_chars(digits.data(), digits.data() + digits.size(), port);
}

}  // namespace

short HttpStream::Wait(short events, Deadline deadline) const {
  pollfd state{socket_, events, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int found = ::poll(&state, 1, static_cast<int>(std::clamp<long>(left, 0, 60'000)));
    if (found > 0) return state.revents;
    if (found < 0 && errno != EINTR) return 0;
    if (Clock::now() >= deadline) return 0;
  }
}

bool HttpStream::BeginHead(double wait_s) {
  if (begin_ == end_ && Wait(POLLIN, After(wait_s)) == 0) return false;
  deadline_ = After(limits_.head_s);
  bytes_left_ = limits_.head_bytes;
  return true;
}

void HttpStream::BeginBody() {
  deadline_ = After(limits_.body_s);
  bytes_left_ = std::numeric_limits<std::size_t>::max();  // who reads the body bounds it
}

bool HttpStream::is_readable() const {
  return begin_ < end_ || Wait(POLLIN, std::min(deadline_, After(kReadSeconds))) != 0;
}

bool HttpStream::is_writable() const {
  if ((Wait(POLLOUT, After(kWriteSeconds)) & POLLOUT) == 0) return false;
  return Wait(POLLRDHUP, Clock::now()) == 0;
}

ssize_t HttpStream::read(char* out, std::size_t size) {
  if (begin_ == end_) {
    if (!is_readable()) return -1;
    ssize_t count = 0;
    do {
      count = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
    } while (count < 0 && errno == EINTR);
    if (count <= 0) return count;
    begin_ = 0;
    end_ = static_cast<std::size_t>(count);
  }
  const std::size_t count = std::min({size, end_ - begin_, bytes_left_});
  if (count == 0 || Clock::now() > deadline_) return -1;
  std::memcpy(out, buffer_.data() + begin_, count);
  begin_ += count;
  bytes_left_ -= count;
  return static_cast<ssize_t>(count);
}

ssize_t HttpStream::write(const char* bytes, std::size_t size) {
  if ((Wait(POLLOUT, After(kWriteSeconds)) & POLLOUT) == 0) return -1;
  ssize_t count = 0;
  do {
    count = ::send(socket_, bytes, size, MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  return count;
}

void HttpStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  IpAndPort(::getpeername, socket_, ip, port);
}

void HttpStream::get_local_ip_and_port(std::string& ip, int& port) const {
  IpAndPort(::getsockname, socket_, ip, port);
}

}  // namespace kvserve
