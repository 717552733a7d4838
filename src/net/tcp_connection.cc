// A message is a header and a payload; both directions keep their progress, so that a Receive that
// runs out of time can go on later, while a Send that stops inside a message has broken the stream.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <atomic>
#include <optional>

#include "base/hash.h"
#include "base/try.h"
#include "net/cancel_signal.h"
#include "net/endpoint.h"
#include "net/tcp_socket.h"
#include "net/wait.h"

namespace kvserve {
namespace {

constexpr std::size_t kPacedSliceBytes = 16 * 1024;
constexpr std::chrono::milliseconds kPacedCatchUp{100};
constexpr std::size_t kFirstPayloadBytes = 1 << 20;  // allocated on a peer's word alone
constexpr std::size_t kFinishBytes = 1 << 20;

std::uint64_t NanosecondsSince(Clock::time_point start) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

class TcpConnection final : public Connection {
 public:
  TcpConnection(TcpSocket socket, std::string peer)
      : socket_(std::move(socket)),
        descriptor_(socket_.socket.native_handle()),
        peer_(std::move(peer)) {}

  Status Send(MessageType type, std::uint64_t transfer_id, std::uint32_t index,
              std::span<const std::byte> payload, Deadline deadline) override;
  Status Receive(Deadline deadline, std::size_t max_payload, Message& message) override;
  void Cancel() override;
  void Finish(Deadline deadline) override;
  bool PeerClosed() const override;
  void SetPacer(std::shared_ptr<Pacer> pacer) override { pacer_ = std::move(pacer); }
  void SetEpochs(std::uint64_t local, std::uint64_t peer) override {
    local_epoch_ = local;
    peer_epoch_ = peer;
  }
  ConnectionStats stats() const override;
  const std::string& peer_address() const override { return peer_; }

 private:
  using Buffers = std::array<asio::const_buffer, 2>;

  // The message under way: begins when its first byte is seen.
  struct Incoming {
    MessageHeaderBytes header_bytes;
    std::size_t header_filled = 0;
    std::optional<MessageHeader> header;
    std::size_t payload_filled = 0;
    std::uint64_t backlog_bytes = 0;
    Clock::time_point started;
  };

  asio::ip::tcp::socket& socket() { return socket_.socket; }

  Status CheckUsable() const;
  Status Write(Buffers& buffers, std::size_t count, Deadline deadline, std::size_t& sent);
  Status WritePaced(std::span<const std::byte> header, std::span<const std::byte> payload,
                    Deadline deadline, std::size_t& sent);
  Status ReceiveParts(Deadline deadline, std::size_t max_payload);
  Status BeginMessage(Deadline deadline);
  Status Fill(std::span<std::byte> into, std::size_t& filled, Deadline deadline);
  Status FillPayload(Deadline deadline);
  Status VerifyPayload();
  void Deliver(Message& message);
  void Break();

  TcpSocket socket_;
  const int descriptor_;
  const std::string peer_;
  CancelSignal cancel_;
  std::atomic<bool> broken_{false};
  std::uint64_t local_epoch_ = 0;
  std::uint64_t peer_epoch_ = 0;

  std::shared_ptr<Pacer> pacer_;    // sender's
  Incoming incoming_;               // receiver's, as is payload_
  std::vector<std::byte> payload_;  // may be larger than the message; swapped with the caller's

  std::atomic<std::uint64_t> sent_bytes_{0};
  std::atomic<std::uint64_t> received_bytes_{0};
  std::atomic<std::uint64_t> send_ns_{0};
  std::atomic<std::uint64_t> receive_ns_{0};
};

Status TcpConnection::CheckUsable() const {
  if (cancel_.cancelled())
    return MakeError(ErrorCode::kCancelled, "connection to " + peer_ + " was cancelled");
  if (broken_.load(std::memory_order_acquire)) {
    return MakeError(ErrorCode::kUnavailable, "connection to " + peer_ + " broke earlier");
  }
  return {};
}

void TcpConnection::Break() {
  broken_.store(true, std::memory_order_release);
  ::shutdown(descriptor_, SHUT_RDWR);  // frees the peer and our other thread at once
}

// ---- sending -----------------------------------------------------------------------------------

Status TcpConnection::Send(MessageType type, std::uint64_t transfer_id, std::uint32_t index,
                           std::span<const std::byte> payload, Deadline deadline) {
  KVSERVE_TRY(CheckUsable());
  const auto started = Clock::now();
  const MessageHeaderBytes header =
      PackHeader({type, transfer_id, local_epoch_, index, payload.size(), Hash64(payload)});
  std::size_t sent = 0;
  Status status;
  if (pacer_ != nullptr) {
    status = WritePaced(header, payload, deadline, sent);
  } else {
    Buffers buffers = {asio::buffer(header), asio::buffer(payload.data(), payload.size())};
    status = Write(buffers, header.size() + payload.size(), deadline, sent);
  }
  sent_bytes_ += sent;
  send_ns_ += NanosecondsSince(started);
  if (status) return {};
  Error error = std::move(status).error();
  if (cancel_.cancelled()) error.code = ErrorCode::kCancelled;
  error.message = "sending to " + peer_ + ": " + error.message + " after " + std::to_string(sent) +
                  " of " + std::to_string(header.size() + payload.size()) + " bytes";
  if (error.code != ErrorCode::kDeadlineExceeded || sent > 0) Break();
  return tl::unexpected<Error>(std::move(error));
}

// Writes `count` bytes of the buffers, advancing them and `sent`.
Status TcpConnection::Write(Buffers& buffers, std::size_t count, Deadline deadline,
                            std::size_t& sent) {
  while (count > 0) {
    asio::error_code error;
    const std::size_t written = socket().write_some(buffers, error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      KVSERVE_TRY(WaitReady(descriptor_, POLLOUT, deadline, &cancel_));
      continue;
    }
    if (error == asio::error::interrupted) continue;
    if (error) return MakeError(ErrorCode::kUnavailable, error.message());
    sent += written;
    count -= written;
    const std::size_t of_first = std::min(written, buffers[0].size());
    buffers[0] += of_first;
    buffers[1] += written - of_first;
    if (cancel_.cancelled()) return MakeError(ErrorCode::kCancelled, "cancelled");
  }
  return {};
}

Status TcpConnection::WritePaced(std::span<const std::byte> header,
                                 std::span<const std::byte> payload, Deadline deadline,
                                 std::size_t& sent) {
  Clock::time_point due = Clock::now();  // of the slice before
  const auto write = [&](std::span<const std::byte> first,
                         std::span<const std::byte> second) -> Status {
    const std::size_t count = first.size() + second.size();
    const auto now = Clock::now();
    // A late wake-up of this thread is made up for, as a link's queue would have gone on draining.
    due = std::max(due, now - kPacedCatchUp);
    const auto ready = pacer_->Reserve(count, due);
    due = std::max(due, ready);
    if (ready > now) {
      KVSERVE_TRY(WaitUntil(std::min<Clock::time_point>(ready, deadline), &cancel_));
      if (ready > deadline) return MakeError(ErrorCode::kDeadlineExceeded, "the deadline passed");
    }
    Buffers buffers = {asio::buffer(first.data(), first.size()),
                       asio::buffer(second.data(), second.size())};
    return Write(buffers, count, deadline, sent);
  };
  const std::size_t with_header = std::min(payload.size(), kPacedSliceBytes - header.size());
  KVSERVE_TRY(write(header, payload.first(with_header)));
  for (std::size_t at = with_header; at < payload.size();) {
    const std::size_t slice = std::min(payload.size() - at, kPacedSliceBytes);
    KVSERVE_TRY(write(payload.subspan(at, slice), {}));
    at += slice;
  }
  return {};
}

// ---- receiving ---------------------------------------------------------------------------------

Status TcpConnection::Receive(Deadline deadline, std::size_t max_payload, Message& message) {
  KVSERVE_TRY(CheckUsable());
  Status status = ReceiveParts(deadline, max_payload);
  if (status) {
    Deliver(message);
    return {};
  }
  Error error = std::move(status).error();
  if (cancel_.cancelled()) error.code = ErrorCode::kCancelled;
  error.message = "receiving from " + peer_ + ": " + error.message;
  if (error.code != ErrorCode::kDeadlineExceeded) Break();
  return tl::unexpected<Error>(std::move(error));
}

Status TcpConnection::ReceiveParts(Deadline deadline, std::size_t max_payload) {
  if (incoming_.header_filled == 0) KVSERVE_TRY(BeginMessage(deadline));
  if (!incoming_.header) {
    KVSERVE_TRY(Fill(incoming_.header_bytes, incoming_.header_filled, deadline));
    KVSERVE_ASSIGN(const MessageHeader header, UnpackHeader(incoming_.header_bytes, max_payload));
    if (peer_epoch_ != 0 && header.epoch != peer_epoch_) {
      return MakeError(ErrorCode::kCorruptData, "message epoch is not the one of the handshake");
    }
    incoming_.header = header;
  }
  KVSERVE_TRY(FillPayload(deadline));
  return VerifyPayload();
}

Status TcpConnection::BeginMessage(Deadline deadline) {
  KVSERVE_TRY(WaitReady(descriptor_, POLLIN, deadline, &cancel_));
  int readable = 0;
  if (::ioctl(descriptor_, FIONREAD, &readable) != 0) readable = 0;
  incoming_.started = Clock::now();
  incoming_.backlog_bytes = static_cast<std::uint64_t>(readable);
  return {};
}

Status TcpConnection::Fill(std::span<std::byte> into, std::size_t& filled, Deadline deadline) {
  while (filled < into.size()) {
    asio::error_code error;
    const std::size_t count =
        socket().read_some(asio::buffer(into.data() + filled, into.size() - filled), error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      KVSERVE_TRY(WaitReady(descriptor_, POLLIN, deadline, &cancel_));
      continue;
    }
    if (error == asio::error::interrupted) continue;
    if (error == asio::error::eof) {
      return MakeError(ErrorCode::kUnavailable, incoming_.header_filled == 0
                                                    ? "the peer closed the connection"
                                                    : "the peer closed inside a message");
    }
    if (error) return MakeError(ErrorCode::kUnavailable, error.message());
    filled += count;
    received_bytes_ += count;
    if (cancel_.cancelled()) return MakeError(ErrorCode::kCancelled, "cancelled");
  }
  return {};
}

// The buffer doubles as bytes arrive: a length costs nothing until it is backed by data.
Status TcpConnection::FillPayload(Deadline deadline) {
  const auto wanted = static_cast<std::size_t>(incoming_.header->payload_bytes);
  if (payload_.size() > wanted) payload_.resize(wanted);
  while (incoming_.payload_filled < wanted) {
    const std::size_t affordable =
        std::max({payload_.capacity(), kFirstPayloadBytes, 2 * incoming_.payload_filled});
    const std::size_t target = std::min(wanted, affordable);
    if (payload_.size() < target) payload_.resize(target);
    KVSERVE_TRY(Fill(std::span(payload_).first(target), incoming_.payload_filled, deadline));
  }
  return {};
}

Status TcpConnection::VerifyPayload() {
  const auto wanted = static_cast<std::size_t>(incoming_.header->payload_bytes);
  if (Hash64(std::span(payload_).first(wanted)) != incoming_.header->payload_checksum) {
    return MakeError(ErrorCode::kCorruptData, "message payload does not match its checksum");
  }
  return {};
}

void TcpConnection::Deliver(Message& message) {
  const MessageHeader& header = *incoming_.header;
  message.type = header.type;
  message.transfer_id = header.transfer_id;
  message.epoch = header.epoch;
  message.index = header.index;
  message.payload.swap(payload_);
  message.wire_bytes = kMessageHeaderBytes + header.payload_bytes;
  message.backlog_bytes = std::min(incoming_.backlog_bytes, message.wire_bytes);
  const std::uint64_t active_ns = NanosecondsSince(incoming_.started);
  message.receive_s = static_cast<double>(active_ns) * 1e-9;
  receive_ns_ += active_ns;
  incoming_ = Incoming{};
}

// ---- the rest ----------------------------------------------------------------------------------

void TcpConnection::Cancel() {
  cancel_.Cancel();
  ::shutdown(descriptor_, SHUT_RDWR);
}

void TcpConnection::Finish(Deadline deadline) {
  ::shutdown(descriptor_, SHUT_WR);
  std::array<std::byte, 4096> discard;
  for (std::size_t total = 0; total < kFinishBytes;) {
    if (!WaitReady(descriptor_, POLLIN, deadline, &cancel_)) break;
    asio::error_code error;
    total += socket().read_some(asio::buffer(discard), error);
    if (error && error != asio::error::would_block && error != asio::error::interrupted) break;
  }
  Break();
}

bool TcpConnection::PeerClosed() const {
  if (broken_.load(std::memory_order_acquire)) return true;
  pollfd state{descriptor_, POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

ConnectionStats TcpConnection::stats() const {
  return {sent_bytes_, received_bytes_, static_cast<double>(send_ns_) * 1e-9,
          static_cast<double>(receive_ns_) * 1e-9};
}

}  // namespace

Result<Message> Connection::Receive(Deadline deadline, std::size_t max_payload) {
  Message message;
  KVSERVE_TRY(Receive(deadline, max_payload, message));
  return message;
}

Result<std::unique_ptr<Connection>> MakeConnection(TcpSocket socket) {
  asio::error_code error;
  const auto peer = socket.socket.remote_endpoint(error);
  if (!error) socket.socket.non_blocking(true, error);
  if (!error) socket.socket.set_option(asio::ip::tcp::no_delay(true), error);
  if (!error) socket.socket.set_option(asio::socket_base::keep_alive(true), error);
  if (error) {
    return MakeError(ErrorCode::kUnavailable, "the new connection is gone: " + error.message());
  }
  const auto set = [&](int option, int value) {  // best effort: the system's defaults are hours
    ::setsockopt(socket.socket.native_handle(), IPPROTO_TCP, option, &value, sizeof(value));
  };
  set(TCP_KEEPIDLE, 10);
  set(TCP_KEEPINTVL, 5);
  set(TCP_KEEPCNT, 3);
  const HostPort address{peer.address().to_string(), peer.port()};
  return std::make_unique<TcpConnection>(std::move(socket), address.text());
}

}  // namespace kvserve
