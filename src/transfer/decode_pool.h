// Threads that decode frames and write them into the engine's blocks; each keeps its decoder.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kvserve/codec.h"
#include "kvserve/paged.h"
#include "net/message.h"
#include "transfer/running_fetch.h"

namespace kvserve {

class DecodePool {
 public:
  // `cache` outlives the pool. Throws std::system_error or std::bad_alloc.
  DecodePool(const PagedCache& cache, const Fingerprint& model, const CodecOptions& codec,
             std::uint32_t threads);
  ~DecodePool();
  DecodePool(const DecodePool&) = delete;
  DecodePool& operator=(const DecodePool&) = delete;

  // A kChunk message of a fetch that has opened a job for it; the job is closed when the frame is
  // in its blocks or the fetch has failed.
  void Push(std::shared_ptr<RunningFetch> fetch, Message message);
  // Drops what is queued for a fetch that has failed.
  void Drop(const RunningFetch& fetch);
  // A message to receive into, with the capacity of an earlier one.
  [[nodiscard]] Message Spare();

 private:
  struct Job {
    std::shared_ptr<RunningFetch> fetch;
    Message message;
  };
  struct Scratch {
    FrameDecoder decoder;
    KvBuffer kv;
  };
  static constexpr std::size_t kMaxSpare = 16;

  void Run(Scratch& scratch);
  [[nodiscard]] Status Write(RunningFetch& fetch, const Message& message, Scratch& scratch);
  [[nodiscard]] Status CheckFrame(RunningFetch& fetch, std::uint32_t index,
                                  std::span<const std::byte> frame, const KvBuffer& kv) const;
  void Stop();

  const PagedCache& cache_;
  const Fingerprint model_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // [thread]
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<Message> spare_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvserve
