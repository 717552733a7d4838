// What the prefill node does with one connection after the handshake.
#pragma once

#include "net/connection.h"
#include "runtime/prefill_transfer.h"

namespace kvserve {

struct PrefillSessionOptions {
  double idle_s;         // without a request for so long: closed
  double max_request_s;  // for requests that state no deadline
};

// Reads until the peer goes, misbehaves (a second request while one runs, a message that only a
// prefill node sends) or the node stops. Blocks; the calling thread is the only receiver. A request
// in progress ends with the connection.
void RunPrefillSession(const PrefillResources& resources, const PrefillSessionOptions& options,
                       Connection& connection);

}  // namespace kvserve
