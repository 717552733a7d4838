// One fetch of a receiver: what is wanted, what has come of it, and how it ends.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "kvserve/profile.h"
#include "kvserve/receiver.h"
#include "net/endpoint.h"
#include "net/fetch_messages.h"
#include "net/transfer_cancel.h"
#include "transfer/frame_grid.h"

namespace kvserve {

// Thread-safe, but for what is said to be the transfer's own. The first failure wins; blocks are
// written only by jobs that began before it, and the report waits for those.
class RunningFetch {
 public:
  // `geometry` outlives it.
  RunningFetch(FetchRequest request, HostPort address, const Fingerprint& model,
               const KvGeometry& geometry);

  [[nodiscard]] const FetchRequest& request() const { return request_; }
  [[nodiscard]] const HostPort& address() const { return address_; }
  [[nodiscard]] Deadline deadline() const { return deadline_; }
  [[nodiscard]] const Fingerprint& seed() const { return seed_; }
  [[nodiscard]] std::uint32_t total_tokens() const { return request_.wanted.end; }
  [[nodiscard]] Clock::time_point begun() const { return begun_; }

  // Wakes whoever waits for this fetch, on the network too.
  void Fail(Error error);
  // The failure, or the passed deadline as one.
  [[nodiscard]] Status Check();

  // ---- the transfer's own: the thread that receives

  // Prepares cancelling; kCancelled or another error if it has failed already.
  [[nodiscard]] Status BeginTransfer();
  [[nodiscard]] TransferCancel& cancel() { return *cancel_; }
  // What the sender has announced; kMismatch if it cannot be.
  [[nodiscard]] Status Start(const FetchStarted& started);
  [[nodiscard]] const FrameGrid& grid() const { return *grid_; }
  // Whether a frame of these stages is what the sender has announced: lossless, by the profile, or
  // by the fallback that it has announced beside it, of which `drifted` tells.
  [[nodiscard]] bool IsAnnounced(std::span<const StageSpec> stages, bool& drifted) const;
  [[nodiscard]] FetchReport& report() { return report_; }
  // Notes the arrival of a frame; kMismatch for one that is not wanted or comes twice.
  [[nodiscard]] Status Expect(std::uint32_t index);

  // ---- jobs that decode

  // Waits until fewer than `limit` are open, then opens one; the failure if there is one.
  [[nodiscard]] Status OpenJob(std::uint32_t limit);
  void CloseJob(double decode_s);
  void CountDrift();
  [[nodiscard]] std::uint32_t drift_fallbacks() const;
  // Waits until none is open; the failure if there is one before that.
  [[nodiscard]] Status AwaitJobs();
  // Waits until none is open, whatever happens.
  void WaitForJobs();
  [[nodiscard]] double decode_s() const;

 private:
  [[nodiscard]] Result<bool> TakeStages(const std::string& text,
                                        std::vector<std::uint16_t>& stages) const;

  const FetchRequest request_;
  const HostPort address_;
  const KvGeometry& geometry_;
  const Fingerprint seed_;
  const Clock::time_point begun_ = Clock::now();
  const Deadline deadline_;

  std::optional<FrameGrid> grid_;
  bool lossless_ = false;
  std::vector<std::uint16_t> stages_;           // ids of the profile's
  std::vector<std::uint16_t> fallback_stages_;  // likewise; none: no fallback
  std::vector<bool> arrived_;                   // [frame]
  FetchReport report_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<TransferCancel> cancel_;  // made when a connection is tried: it has a descriptor
  std::optional<Error> error_;
  std::uint32_t jobs_ = 0;
  std::uint32_t drift_fallbacks_ = 0;
  double decode_s_ = 0.0;
};

}  // namespace kvserve
