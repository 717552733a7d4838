// A sending side whose every message is the test's, to one receiver after the other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/connection.h"
#include "net/fetch_messages.h"
#include "net/listener.h"
#include "net/messages.h"
#include "transfer/testing/transfer_pair.h"

namespace kvserve::testing {

// The frames of a request as a sender would send them.
struct HonestFrames {
  FetchStarted started;
  std::vector<std::uint32_t> indices;
  std::vector<std::vector<std::byte>> payloads;  // kChunk
  TransferEnd end;
};
[[nodiscard]] HonestFrames MakeFrames(TransferPair& pair, const TransferPair::Request& request,
                                      const std::string& profile, const std::string& context = "");

class FakeSender {
 public:
  // After the handshake and a kFetch; the connection ends when it returns.
  using Script = std::function<void(Connection& connection, std::uint64_t transfer_id)>;
  FakeSender(const TransferPair& pair, Script script);
  ~FakeSender();
  FakeSender(const FakeSender&) = delete;
  FakeSender& operator=(const FakeSender&) = delete;

  [[nodiscard]] std::string address() const { return listener_->address().text(); }

 private:
  void Run();

  const KvGeometry geometry_;
  const Script script_;
  std::unique_ptr<Listener> listener_;
  std::thread thread_;
};

template <typename T>
void SendPayload(Connection& connection, MessageType type, std::uint64_t transfer_id,
                 const T& message) {
  std::vector<std::byte> payload;
  if (Encode(message, payload)) {
    (void)connection.Send(type, transfer_id, 0, payload, After(60.0));
  }
}
// All of it, in order.
void SendFrames(Connection& connection, std::uint64_t transfer_id, const HonestFrames& frames);
// Waits for the end of the stream.
void AwaitEnd(Connection& connection);

}  // namespace kvserve::testing
