// KvBuffers that are used again, with a limit on how many lie unused.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "kvserve/view.h"

namespace kvserve {

// Thread-safe. Outlives its leases.
class BufferPool {
 public:
  struct Return {
    BufferPool* pool = nullptr;
    void operator()(KvBuffer* buffer) const { pool->Release(buffer); }
  };
  using Lease = std::unique_ptr<KvBuffer, Return>;

  // Keeps up to `idle_limit` unused buffers; how many are out at once is bounded by the queues of
  // the requests (at most three each).
  explicit BufferPool(std::size_t idle_limit) : idle_limit_(idle_limit) {}

  [[nodiscard]] Lease Acquire();
  [[nodiscard]] int in_use() const { return in_use_; }

 private:
  void Release(KvBuffer* buffer);

  const std::size_t idle_limit_;
  std::atomic<int> in_use_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<KvBuffer>> idle_;
};

}  // namespace kvserve
