// Connections on which a sender waits for the next request, so that it need not wait when it stops.
#pragma once

#include <mutex>
#include <set>

#include "net/connection.h"

namespace kvserve {

class IdleConnections {
 public:
  // As Connection::Receive; kCancelled from the moment of Stop on.
  [[nodiscard]] Status Receive(Connection& connection, Deadline deadline, std::size_t max_payload,
                               Message& message);
  // Ends all waiting, now and later. What a connection is being used for goes on.
  void Stop();

 private:
  std::mutex mutex_;
  std::set<Connection*> waiting_;
  bool stopping_ = false;
};

}  // namespace kvserve
