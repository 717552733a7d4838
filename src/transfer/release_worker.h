// Tells senders, when there is time, that a ticket is not needed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/bounded_queue.h"
#include "net/peer_pool.h"

namespace kvserve {

class ReleaseWorker {
 public:
  // `pool_of` gives the pool of an address, which outlives the worker; it is called by the worker's
  // thread. Throws std::system_error.
  explicit ReleaseWorker(std::function<PeerPool*(const HostPort&)> pool_of);
  ~ReleaseWorker();
  ReleaseWorker(const ReleaseWorker&) = delete;
  ReleaseWorker& operator=(const ReleaseWorker&) = delete;

  // Dropped when thousands wait already: leases do the rest.
  void Push(HostPort address, std::string ticket);

 private:
  struct Work {
    HostPort address;
    std::string ticket;
  };
  static constexpr std::size_t kMaxWaiting = 4096;

  void Run();
  void Tell(const Work& work);

  const std::function<PeerPool*(const HostPort&)> pool_of_;
  TransferCancel cancel_;
  BoundedQueue<Work> work_{kMaxWaiting};
  std::thread thread_;
};

}  // namespace kvserve
