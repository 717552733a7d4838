// Tells whether the client of an HTTP request is still connected while its handler computes.
#pragma once

#include <string>

namespace kvserve {

// cpp-httplib shows a disconnect only to content providers, that is after the status has been sent.
// This finds the socket by its two addresses. Valid within the handler of that request; any thread.
class ClientWatch {
 public:
  ClientWatch(const std::string& remote_address, int remote_port, int local_port);
  // True also if the socket could not be found.
  [[nodiscard]] bool connected() const;

 private:
  int socket_ = -1;
};

}  // namespace kvserve
