#include "base/buffer_pool.h"

#include <utility>

namespace kvserve {

BufferPool::Lease BufferPool::Acquire() {
  ++in_use_;
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return Lease(new KvBuffer, Return{this});
  Lease lease(idle_.back().release(), Return{this});
  idle_.pop_back();
  return lease;
}

void BufferPool::Release(KvBuffer* buffer) {
  std::unique_ptr<KvBuffer> owned(buffer);
  --in_use_;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < idle_limit_) idle_.push_back(std::move(owned));
}

}  // namespace kvserve
