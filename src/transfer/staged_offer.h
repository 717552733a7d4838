// One ticket of a sender: what has been staged of it, the frames made, and who waits for them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer_pool.h"
#include "base/clock.h"
#include "kvserve/codec.h"
#include "kvserve/profile.h"
#include "kvserve/sender.h"
#include "transfer/frame_grid.h"
#include "transfer/staging_budget.h"

namespace kvserve {

// A frame as it goes over the wire: chunk info and frame (net/messages.h).
struct ReadyFrame {
  std::vector<std::byte> payload;
  std::uint64_t raw_bytes = 0;
  double encode_s = 0.0;
  bool fell_back = false;      // to lossless or none
  FrameDrift drift;            // unless it has
  StagingBudget::Share share;  // given back with the last reader
};

// Raw KV of a frame, complete.
struct GatheredFrame {
  std::uint32_t index = 0;
  BufferPool::Lease kv;
  StagingBudget::Share share;
};

// Thread-safe but for Gather, which is the gathering thread's. Ends once; whoever still holds it
// then sees `error`.
class StagedOffer {
 public:
  // `geometry` outlives the offer. kInvalidArgument: profile, tokens; kResourceExhausted.
  [[nodiscard]] static Result<std::shared_ptr<StagedOffer>> Create(std::string ticket, Offer offer,
                                                                   const SenderOptions& options,
                                                                   const KvGeometry& geometry);

  [[nodiscard]] const std::string& ticket() const { return ticket_; }
  [[nodiscard]] const Offer& offer() const { return offer_; }
  [[nodiscard]] const Profile& profile() const { return profile_; }
  // Of frames unlike the calibration's texts; no stages: there is none, or the profile needs none.
  [[nodiscard]] const Profile& fallback() const { return fallback_; }
  [[nodiscard]] const FrameGrid& grid() const { return grid_; }
  [[nodiscard]] const Fingerprint& seed() const { return seed_; }
  [[nodiscard]] const Fingerprint& key() const { return key_; }  // of all tokens

  // ---- the engine's side

  // Notes that `tokens` of some layers are on their way and takes their frames' share of `budget`.
  // kInvalidArgument: not the next tokens of these layers; kResourceExhausted: above the bound.
  [[nodiscard]] Status Reserve(TokenRange tokens, std::uint32_t first_layer, std::uint32_t layers,
                               StagingBudget& budget);
  // Copies them out of their blocks; the frames that this has completed are appended to `complete`.
  [[nodiscard]] Status Gather(const PagedCache& cache, std::span<const BlockTable> tables,
                              TokenRange tokens, std::uint32_t first_layer, std::uint32_t layers,
                              BufferPool& pool, std::vector<GatheredFrame>& complete);
  // False: frames of this offer are encoded one after the other, and the one in hand is followed by
  // NextInTurn. `frame` is kept then.
  [[nodiscard]] bool TakeTurn(GatheredFrame& frame);
  // The next of those, once the one in hand is done.
  [[nodiscard]] std::optional<GatheredFrame> NextInTurn();
  // Of the frames of this offer; its encoder's alone, which has the turn if that matters.
  [[nodiscard]] RequestMemory& request() { return request_; }
  void AddFrame(std::uint32_t index, std::shared_ptr<const ReadyFrame> frame);

  // ---- receivers

  struct Next {
    std::uint32_t index = 0;
    std::shared_ptr<const ReadyFrame> frame;  // null: nothing until `until`, or all are `done`
    bool done = false;
  };
  // The next frame in the order of their completion that IsWanted; `position` is the reader's own,
  // 0 at first. Waits until `until`. The offer's error once it has ended.
  [[nodiscard]] Result<Next> NextFrame(std::size_t& position, std::uint32_t first_token,
                                       Clock::time_point until);
  void CountSent(std::uint64_t bytes);
  // True for the last of the receivers that were expected.
  [[nodiscard]] bool FinishReceiver(bool delivered);
  [[nodiscard]] bool delivered_any() const { return delivered_ > 0; }

  // ---- its end

  // False if it has ended before. Readers wake up with `error`; frames are dropped.
  bool End(const Error& error);
  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }
  // When it was begun, or something of it was last staged, encoded or sent.
  [[nodiscard]] Clock::time_point last_use() const;
  [[nodiscard]] OfferReport Report() const;

 private:
  StagedOffer(std::string ticket, Offer offer, Profile profile, Profile fallback,
              RequestMemory request, FrameGrid grid, Fingerprint seed);
  void Use() { last_use_ = Clock::now().time_since_epoch().count(); }
  [[nodiscard]] Status GatherInto(std::uint32_t index, const PagedCache& cache,
                                  std::span<const BlockTable> tables, TokenRange tokens,
                                  std::uint32_t first_layer, std::uint32_t end_layer);
  template <typename Visit>
  [[nodiscard]] Status ForEachFrame(TokenRange tokens, std::uint32_t first_layer,
                                    std::uint32_t layers, const Visit& visit);

  struct Filling {
    BufferPool::Lease kv;
    std::uint64_t missing = 0;  // tokens times layers
  };

  const std::string ticket_;
  const Offer offer_;
  const Profile profile_;
  const Profile fallback_;
  const FrameGrid grid_;
  const Fingerprint seed_;
  const Fingerprint key_;
  const Clock::time_point begun_ = Clock::now();
  std::atomic<Clock::rep> last_use_{Clock::now().time_since_epoch().count()};
  std::atomic<bool> ended_{false};
  std::atomic<std::uint32_t> delivered_{0};
  std::atomic<std::uint32_t> finished_receivers_{0};

  RequestMemory request_;
  std::vector<Filling> filling_;  // [frame]; the gathering thread's
  KvView view_;                   // likewise

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint32_t> next_token_;                  // [layer] to be staged
  std::vector<StagingBudget::Share> shares_;               // [frame] of the raw KV
  std::vector<std::shared_ptr<const ReadyFrame>> frames_;  // [frame]
  std::vector<std::uint32_t> order_;                       // frames that are ready
  std::deque<GatheredFrame> waiting_;                      // for their turn
  bool turn_taken_ = false;
  std::uint32_t wanted_frames_ = 0;  // that hold anything
  Error error_;
  OfferReport report_;
};

}  // namespace kvserve
