// Both ends of a connection over 127.0.0.1, and a peer that can send any bytes, for tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "net/listener.h"
#include "net/message.h"

namespace kvserve::testing {

// Far enough that only a hang reaches it.
inline Deadline Patience() {
  return After(60);
}

inline std::unique_ptr<Listener> MakeListener() {
  return std::move(Listener::Bind(HostPort{"127.0.0.1", 0}, AuthToken())).value();
}

struct ConnectionPair {
  std::unique_ptr<Connection> client;
  std::unique_ptr<Connection> server;
};

inline ConnectionPair MakePair() {
  const auto listener = MakeListener();
  ConnectionPair pair;
  pair.client = std::move(Connect(listener->address(), Patience())).value();
  pair.server = std::move(listener->Accept(Patience())).value();
  return pair;
}

// A plain TCP client without any protocol. Blocking; never raises SIGPIPE.
class RawPeer {
 public:
  explicit RawPeer(std::uint16_t port) : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ =
        ::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawPeer() { Close(); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }

  bool Write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // Reads until the other side ends or resets; the bytes that came.
  std::vector<std::byte> ReadAll() {
    std::vector<std::byte> all;
    std::byte part[4096];
    for (;;) {
      const ssize_t count = ::recv(descriptor_, part, sizeof(part), 0);
      if (count <= 0) return all;
      all.insert(all.end(), part, part + count);
    }
  }
  void FinishWriting() { ::shutdown(descriptor_, SHUT_WR); }
  void Close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }
  // Closes with RST instead of FIN.
  void Reset() {
    const linger hard{1, 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    Close();
  }

 private:
  int descriptor_ = -1;
  bool connected_ = false;
};

inline std::vector<std::byte> Bytes(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

inline std::vector<std::byte> RandomBytes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// A whole message as it goes over the wire.
inline std::vector<std::byte> WireMessage(MessageType type, std::span<const std::byte> payload,
                                          std::uint64_t epoch = 0) {
  const auto header = PackHeader({type, 7, epoch, 3, payload.size(), Hash64(payload)});
  std::vector<std::byte> bytes(header.size() + payload.size());
  std::memcpy(bytes.data(), header.data(), header.size());
  if (!payload.empty()) {
    std::memcpy(bytes.data() + header.size(), payload.data(), payload.size());
  }
  return bytes;
}

// What strangers send: noise, a pickle that would run a command, an HTTP request, a msgpack array
// that claims 2^32 - 1 elements, a TLS hello, nothing.
inline std::vector<std::vector<std::byte>> Junk() {
  using namespace std::string_view_literals;
  return {
      RandomBytes(3000, 1),
      Bytes("\x80\x04\x95\x20\0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04"
            "true\x94\x85\x94R\x94.                                                    "sv),
      Bytes("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a-browser-of-some-kind\r\n\r\n"),
      Bytes("\xdd\xff\xff\xff\xff\xdd\xff\xff\xff\xff\xc6\xff\xff\xff\xff\x81\xa1\x61\x01 "
            "                                                              "sv),
      Bytes("\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03 and then some sixty bytes of a client hello"
            " which go on"sv),
      {}};
}

// Joins on destruction, so that a failed assertion does not leave a thread behind.
class Background {
 public:
  explicit Background(std::function<void()> work) : thread_(std::move(work)) {}
  ~Background() { Join(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

}  // namespace kvserve::testing
