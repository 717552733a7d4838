// A proxy between two nodes that alters, drops, delays or cuts what it carries.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "net/endpoint.h"
#include "net/message.h"

namespace kvserve::testing {

struct WireMessage {
  MessageHeader header;
  std::vector<std::byte> payload;
};

// Sees each message from the prefill node to the decode node; what it returns is sent instead, with
// checksums made anew, so that faults reach the layers above them. Empty: dropped.
using Tamper = std::function<std::vector<WireMessage>(WireMessage)>;

// What stands between the nodes is not theirs to trust: this stands there.
class FaultProxy {
 public:
  explicit FaultProxy(const HostPort& target);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  [[nodiscard]] HostPort address() const { return {"127.0.0.1", port_}; }
  void SetTamper(Tamper tamper);
  // Ends every connection; new ones are made until refused.
  void Cut();
  void RefuseNew(bool refuse) { refuse_ = refuse; }
  // Carries nothing any more, in either direction, and closes nothing: a half-open link.
  void Freeze(bool frozen) { frozen_ = frozen; }
  [[nodiscard]] int accepted() const { return accepted_; }

 private:
  struct Link;
  void AcceptLoop();
  void CarryRequests(Link& link);
  void CarryAnswers(Link& link);
  void WaitWhileFrozen() const;

  const HostPort target_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> frozen_{false};
  std::atomic<bool> refuse_{false};
  std::atomic<int> accepted_{0};
  std::mutex mutex_;
  Tamper tamper_;
  std::list<std::unique_ptr<Link>> links_;
  std::thread thread_;
};

}  // namespace kvserve::testing
