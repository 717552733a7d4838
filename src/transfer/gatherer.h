// The thread that copies staged KV out of the engine's blocks, in the order of its staging.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/buffer_pool.h"
#include "kvserve/paged.h"
#include "transfer/encode_pool.h"
#include "transfer/ticket_table.h"

namespace kvserve {

class Gatherer {
 public:
  struct Work {
    std::shared_ptr<StagedOffer> offer;
    std::vector<BlockTable> tables;
    TokenRange tokens;
    std::uint32_t first_layer = 0;
    std::uint32_t layers = 0;
  };

  // All outlive it. Throws std::system_error without a thread.
  Gatherer(const PagedCache& cache, TicketTable& tickets, BufferPool& buffers,
           EncodePool& encoders);
  // Drops what has not been read.
  ~Gatherer();
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  void Push(Work work);
  // Returns when all that was pushed before has been read.
  void WaitRead();

 private:
  void Run();
  [[nodiscard]] Status Read(const Work& work);

  const PagedCache& cache_;
  TicketTable& tickets_;
  BufferPool& buffers_;
  EncodePool& encoders_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
  std::uint64_t pushed_ = 0;
  std::uint64_t read_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvserve
