#include "fault_proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "base/hash.h"

namespace kvserve::testing {
namespace {

sockaddr_in Loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool ReadAll(int socket, void* out, std::size_t bytes) {
  auto* at = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = recv(socket, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool WriteAll(int socket, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool WriteMessage(int socket, WireMessage message) {
  message.header.payload_bytes = message.payload.size();
  message.header.payload_checksum = Hash64(message.payload);
  const MessageHeaderBytes header = PackHeader(message.header);
  return WriteAll(socket, header.data(), header.size()) &&
         WriteAll(socket, message.payload.data(), message.payload.size());
}

}  // namespace

struct FaultProxy::Link {
  int decode_side = -1;
  int prefill_side = -1;
  std::thread requests;
  std::thread answers;

  // Wakes both threads; the descriptors are closed after they have been joined.
  void Cut() const {
    shutdown(decode_side, SHUT_RDWR);
    shutdown(prefill_side, SHUT_RDWR);
  }
  ~Link() {
    Cut();
    if (requests.joinable()) requests.join();
    if (answers.joinable()) answers.join();
    close(decode_side);
    close(prefill_side);
  }
};

FaultProxy::FaultProxy(const HostPort& target) : target_(target) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  const bool listens = bind(listener_, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                       listen(listener_, 64) == 0;
  EXPECT_TRUE(listens) << "the proxy cannot listen on loopback";
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { AcceptLoop(); });
}

FaultProxy::~FaultProxy() {
  stopping_ = true;
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  close(listener_);
  Cut();
  links_.clear();
}

void FaultProxy::SetTamper(Tamper tamper) {
  const std::lock_guard lock(mutex_);
  tamper_ = std::move(tamper);
}

void FaultProxy::Cut() {
  const std::lock_guard lock(mutex_);
  for (const auto& link : links_) link->Cut();
}

void FaultProxy::AcceptLoop() {
  while (!stopping_) {
    const int from = accept(listener_, nullptr, nullptr);
    if (from < 0) continue;
    if (refuse_) {
      close(from);
      continue;
    }
    ++accepted_;
    const int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(target_.port);
    if (connect(to, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      close(from);
      close(to);
      continue;
    }
    const std::lock_guard lock(mutex_);
    Link& link = *links_.emplace_back(std::make_unique<Link>());
    link.decode_side = from;
    link.prefill_side = to;
    link.requests = std::thread([this, &link] { CarryRequests(link); });
    link.answers = std::thread([this, &link] { CarryAnswers(link); });
  }
}

void FaultProxy::WaitWhileFrozen() const {
  while (frozen_ && !stopping_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void FaultProxy::CarryRequests(Link& link) {
  std::vector<char> buffer(1 << 16);
  for (;;) {
    const ssize_t got = recv(link.decode_side, buffer.data(), buffer.size(), 0);
    WaitWhileFrozen();
    if (got <= 0 || !WriteAll(link.prefill_side, buffer.data(), static_cast<std::size_t>(got))) {
      return link.Cut();
    }
  }
}

void FaultProxy::CarryAnswers(Link& link) {
  for (;;) {
    MessageHeaderBytes bytes;
    WireMessage message;
    if (!ReadAll(link.prefill_side, bytes.data(), bytes.size())) return link.Cut();
    const auto header = UnpackHeader(bytes, std::size_t{1} << 30);
    if (!header) return link.Cut();
    message.header = *header;
    message.payload.resize(header->payload_bytes);
    if (!ReadAll(link.prefill_side, message.payload.data(), message.payload.size())) {
      return link.Cut();
    }
    WaitWhileFrozen();
    Tamper tamper;
    {
      const std::lock_guard lock(mutex_);
      tamper = tamper_;
    }
    std::vector<WireMessage> forwarded;
    if (tamper) {
      forwarded = tamper(std::move(message));
    } else {
      forwarded.push_back(std::move(message));
    }
    for (auto& one : forwarded) {
      if (!WriteMessage(link.decode_side, std::move(one))) return link.Cut();
    }
  }
}

}  // namespace kvserve::testing
