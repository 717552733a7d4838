// Threads that turn gathered KV into frames; each keeps its encoders, by profile.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "kvserve/calibration.h"
#include "transfer/chunk_encoder.h"
#include "transfer/staged_offer.h"
#include "transfer/ticket_table.h"

namespace kvserve {

class EncodePool {
 public:
  // `tickets` outlives the pool. Throws std::system_error without threads.
  EncodePool(TicketTable& tickets, const Fingerprint& model,
             std::shared_ptr<const CalibrationArtefact> calibration, Profile fallback,
             std::uint32_t threads);
  ~EncodePool();
  EncodePool(const EncodePool&) = delete;
  EncodePool& operator=(const EncodePool&) = delete;

  // Never waits: what is queued is bounded by the budget of staged bytes. An offer that cannot be
  // encoded ends as failed.
  void Push(std::shared_ptr<StagedOffer> offer, GatheredFrame frame);

 private:
  struct Job {
    std::shared_ptr<StagedOffer> offer;
    GatheredFrame frame;
  };
  struct Known {
    std::string profile;
    ChunkEncoder encoder;
  };
  // Of one thread: recent profiles, latest first.
  using Encoders = std::list<Known>;
  static constexpr std::size_t kMaxEncoders = 8;

  void Run();
  [[nodiscard]] Status Encode(Job& job, Encoders& encoders, std::vector<std::byte>& scratch);
  [[nodiscard]] Result<ChunkEncoder*> EncoderFor(const StagedOffer& offer, Encoders& encoders);
  void Stop();

  TicketTable& tickets_;
  const Fingerprint model_;
  const std::shared_ptr<const CalibrationArtefact> calibration_;
  const Profile fallback_;  // no stages: none
  BoundedQueue<Job> jobs_;
  std::vector<std::thread> threads_;
};

}  // namespace kvserve
