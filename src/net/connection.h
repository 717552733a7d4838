// One TCP connection that carries messages: blocking calls with deadlines, cancellation, pacing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "kvserve/error.h"
#include "net/message.h"
#include "net/pacer.h"

namespace kvserve {

// Totals since the connection began. receive_s is the sum of Message::receive_s.
struct ConnectionStats {
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  double send_s = 0.0;  // inside Send, pacing and back-pressure included
  double receive_s = 0.0;
};

// Made by Listener::Accept and Connect. One sender thread and one receiver thread may use it at the
// same time; two senders (or two receivers) must take turns. Cancel, PeerClosed and stats are safe
// beside both. There is no queue in user space: a peer that does not read blocks Send
// (back-pressure). The destructor closes the socket; no call may be running then.
class Connection {
 public:
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Returns when the kernel has all bytes. kDeadlineExceeded: before the first byte the connection
  // stays usable, later it is broken (the peer holds half a message). kUnavailable: peer gone.
  [[nodiscard]] virtual Status Send(MessageType type, std::uint64_t transfer_id,
                                    std::uint32_t index, std::span<const std::byte> payload,
                                    Deadline deadline) = 0;

  // Fills `message`, reusing its payload's capacity. kDeadlineExceeded keeps what has arrived and
  // the next call goes on from there (with its own max_payload only if the header is still to
  // come). kCorruptData: not our protocol, checksum, type, length above `max_payload`, or another
  // epoch than the peer's; kUnavailable: end of stream (the message says whether inside a message).
  // After these two every call fails. Memory grows with the bytes that arrive, never with a claimed
  // length.
  [[nodiscard]] virtual Status Receive(Deadline deadline, std::size_t max_payload,
                                       Message& message) = 0;
  [[nodiscard]] Result<Message> Receive(Deadline deadline, std::size_t max_payload);

  // Pending and later Send and Receive return kCancelled; the peer sees the end of the stream.
  virtual void Cancel() = 0;

  // Ends our side, then reads and discards until the peer ends its own (bounded by deadline and
  // 1 MiB): what was sent last, such as a refusal, arrives. No Send or Receive afterwards.
  virtual void Finish(Deadline deadline) = 0;

  // Whether the peer has ended its side or the connection is broken; unread messages may remain.
  // Does not block. A peer that vanished without a word shows after the keepalive (about 25 s).
  [[nodiscard]] virtual bool PeerClosed() const = 0;

  // Null: unlimited. Call before the first Send that it shall govern, from the sender's thread.
  virtual void SetPacer(std::shared_ptr<Pacer> pacer) = 0;

  // Set by the handshake: `local` goes into every header; other headers than `peer`'s are refused.
  virtual void SetEpochs(std::uint64_t local, std::uint64_t peer) = 0;

  [[nodiscard]] virtual ConnectionStats stats() const = 0;
  [[nodiscard]] virtual const std::string& peer_address() const = 0;  // "127.0.0.1:41234", for logs

 protected:
  Connection() = default;
};

}  // namespace kvserve
