// Takes one fetch's frames from a connection.
#pragma once

#include <memory>

#include "net/connection.h"
#include "transfer/decode_pool.h"
#include "transfer/running_fetch.h"

namespace kvserve {

struct FetchTransfer {
  DecodePool& decoders;
  double stall_s = 30.0;
  std::uint32_t max_jobs = 3;  // frames received and not yet written
};

// Blocks until all that is wanted is in its blocks, or the fetch has failed; the only sender and
// receiver on `connection`. Jobs of the fetch may still be open after an error. `started` tells
// whether the sender has answered; `in_order` whether the connection can be used again.
[[nodiscard]] Status RunFetchTransfer(const FetchTransfer& resources,
                                      const std::shared_ptr<RunningFetch>& fetch,
                                      Connection& connection, std::uint64_t transfer_id,
                                      bool& started, bool& in_order);

}  // namespace kvserve
