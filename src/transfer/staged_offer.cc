#include "transfer/staged_offer.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "kvserve/codec.h"
#include "stages/profile_facts.h"
#include "transfer/prefix_seed.h"

namespace kvserve {

StagedOffer::StagedOffer(std::string ticket, Offer offer, Profile profile, Profile fallback,
                         RequestMemory request, FrameGrid grid, Fingerprint seed)
    : ticket_(std::move(ticket)),
      offer_(std::move(offer)),
      profile_(std::move(profile)),
      fallback_(std::move(fallback)),
      grid_(grid),
      seed_(seed),
      key_(PrefixKey(seed, offer_.tokens)),
      request_(std::move(request)),
      filling_(grid.frames()),
      next_token_(grid.geometry().layers.size(), 0),
      shares_(grid.frames()),
      frames_(grid.frames()),
      wanted_frames_(grid.CountWanted(0)) {
  for (std::uint32_t i = 0; i < grid_.frames(); ++i) {
    const FrameGrid::Cell cell = grid_.At(i);
    filling_[i].missing = std::uint64_t{cell.tokens.size()} * cell.layers;
  }
  report_.ticket = ticket_;
  report_.tokens = grid_.tokens();
}

Result<std::shared_ptr<StagedOffer>> StagedOffer::Create(std::string ticket, Offer offer,
                                                         const SenderOptions& options,
                                                         const KvGeometry& geometry) {
  KVSERVE_ASSIGN(Profile profile, ParseProfile(offer.profile));
  KVSERVE_ASSIGN(const ProfileFacts facts,
                 FactsOf(profile.stages, geometry.dtype, ProfileOrigin::kCaller));
  KVSERVE_TRY(CheckKeepsTokens(facts));
  KVSERVE_TRY(CheckNeedsNoQueries(facts));
  KVSERVE_ASSIGN(const FrameEncoder encoder,
                 FrameEncoder::Create(profile, {.threads = 1,
                                                .calibration = options.calibration,
                                                .fallback = options.fallback}));
  if (offer.tokens.empty() || offer.tokens.size() > kMaxTokens) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "an offer of " + std::to_string(offer.tokens.size()) +
                         " tokens is outside 1.." + std::to_string(kMaxTokens));
  }
  if (offer.receivers == 0) {
    return MakeError(ErrorCode::kInvalidArgument, "an offer is for one receiver or more");
  }
  KVSERVE_ASSIGN(const FrameGrid grid,
                 FrameGrid::Create(geometry, static_cast<std::uint32_t>(offer.tokens.size()),
                                   options.frame_tokens, options.layers_per_frame));
  const Fingerprint seed = PrefixSeed(options.model, offer.context);
  return std::shared_ptr<StagedOffer>(new StagedOffer(
      std::move(ticket), std::move(offer), std::move(profile),
      facts.needs_artefact ? options.fallback : Profile{}, encoder.NewRequest(), grid, seed));
}

// ---- staging -----------------------------------------------------------------------------------

// Calls visit(frame) for the frames that hold something and that these tokens and layers touch.
template <typename Visit>
Status StagedOffer::ForEachFrame(TokenRange tokens, std::uint32_t first_layer, std::uint32_t layers,
                                 const Visit& visit) {
  const std::uint32_t first_group = first_layer / grid_.layers_per_frame();
  const std::uint32_t last_group = (first_layer + layers - 1) / grid_.layers_per_frame();
  const std::uint32_t last_row = (tokens.end - 1) / grid_.frame_tokens();
  for (std::uint32_t row = tokens.begin / grid_.frame_tokens(); row <= last_row; ++row) {
    for (std::uint32_t group = first_group; group <= last_group; ++group) {
      const std::uint32_t index = row * grid_.groups() + group;
      if (grid_.IsWanted(index, 0)) KVSERVE_TRY(visit(index));
    }
  }
  return {};
}

Status StagedOffer::Reserve(TokenRange tokens, std::uint32_t first_layer, std::uint32_t layers,
                            StagingBudget& budget) {
  const std::lock_guard lock(mutex_);
  if (ended()) return {};  // the report says why
  for (std::uint32_t i = first_layer; i < first_layer + layers; ++i) {
    if (tokens.begin == next_token_[i] && tokens.end <= grid_.tokens()) continue;
    return MakeError(ErrorCode::kInvalidArgument,
                     "layer " + std::to_string(i) + ": tokens " + std::to_string(tokens.begin) +
                         ".." + std::to_string(tokens.end) + " staged where " +
                         std::to_string(next_token_[i]) + " of " + std::to_string(grid_.tokens()) +
                         " is next");
  }
  Use();
  std::fill_n(next_token_.begin() + first_layer, layers, tokens.end);
  return ForEachFrame(tokens, first_layer, layers, [&](std::uint32_t index) -> Status {
    if (shares_[index].holds() || frames_[index] != nullptr) return {};
    const std::uint64_t bytes = grid_.RawBytes(index);
    shares_[index] = budget.Take(bytes);
    if (!shares_[index].holds()) {
      return MakeError(ErrorCode::kResourceExhausted, "staging " + std::to_string(bytes) +
                                                          " bytes more would pass the limit of " +
                                                          std::to_string(budget.max_bytes()));
    }
    report_.raw_bytes += bytes;
    return {};
  });
}

Status StagedOffer::Gather(const PagedCache& cache, std::span<const BlockTable> tables,
                           TokenRange tokens, std::uint32_t first_layer, std::uint32_t layers,
                           BufferPool& pool, std::vector<GatheredFrame>& complete) {
  const auto begin = Clock::now();
  const auto gather = [&](std::uint32_t index) -> Status {
    Filling& filling = filling_[index];
    if (!filling.kv) {
      filling.kv = pool.Acquire();
      KVSERVE_TRY(filling.kv->Resize(grid_.geometry(), grid_.At(index).tokens, grid_.Held(index)));
    }
    KVSERVE_TRY(GatherInto(index, cache, tables, tokens, first_layer, first_layer + layers));
    if (filling.missing > 0) return {};
    const std::lock_guard lock(mutex_);
    if (ended()) return {};
    complete.push_back({index, std::move(filling.kv), std::move(shares_[index])});
    return {};
  };
  KVSERVE_TRY(ForEachFrame(tokens, first_layer, layers, gather));
  const std::lock_guard lock(mutex_);
  report_.gather_s += SecondsSince(begin);
  return {};
}

Status StagedOffer::GatherInto(std::uint32_t index, const PagedCache& cache,
                               std::span<const BlockTable> tables, TokenRange tokens,
                               std::uint32_t first_layer, std::uint32_t end_layer) {
  Filling& filling = filling_[index];
  const FrameGrid::Cell cell = grid_.At(index);
  filling.kv->ViewInto(view_);
  std::erase_if(view_.layers, [&](const LayerView& layer) {
    return layer.layer < first_layer || layer.layer >= end_layer;
  });
  const TokenRange part{std::max(tokens.begin, cell.tokens.begin),
                        std::min(tokens.end, cell.tokens.end)};
  KVSERVE_TRY(GatherTokens(cache, tables, part, view_));
  filling.missing -= std::uint64_t{part.size()} * view_.layers.size();
  return {};
}

bool StagedOffer::TakeTurn(GatheredFrame& frame) {
  if (!request_.looks_back()) return true;
  const std::lock_guard lock(mutex_);
  if (!std::exchange(turn_taken_, true)) return true;
  if (!ended()) waiting_.push_back(std::move(frame));
  return false;
}

std::optional<GatheredFrame> StagedOffer::NextInTurn() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) {
    turn_taken_ = false;
    return std::nullopt;
  }
  std::optional<GatheredFrame> next(std::move(waiting_.front()));
  waiting_.pop_front();
  return next;
}

void StagedOffer::AddFrame(std::uint32_t index, std::shared_ptr<const ReadyFrame> frame) {
  const std::lock_guard lock(mutex_);
  if (ended()) return;
  Use();
  ++report_.frames;
  report_.lossless_fallbacks += frame->fell_back ? 1 : 0;
  if (frame->drift.fell_back && report_.drift_fallbacks++ == 0) {
    report_.drift_cause = frame->drift.cause;
    report_.drift_reason = frame->drift.reason;
  }
  report_.wire_bytes += frame->payload.size();
  report_.encode_s += frame->encode_s;
  report_.ready_s = SecondsSince(begun_);
  frames_[index] = std::move(frame);
  order_.push_back(index);
  changed_.notify_all();
}

// ---- receivers ---------------------------------------------------------------------------------

Result<StagedOffer::Next> StagedOffer::NextFrame(std::size_t& position, std::uint32_t first_token,
                                                 Clock::time_point until) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (ended()) return tl::unexpected(error_);
    while (position < order_.size()) {
      const std::uint32_t index = order_[position++];
      if (grid_.IsWanted(index, first_token)) return Next{index, frames_[index], false};
    }
    if (position == wanted_frames_) return Next{0, nullptr, true};
    if (changed_.wait_until(lock, until) == std::cv_status::timeout) return Next{};
  }
}

void StagedOffer::CountSent(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Use();
  report_.sent_bytes += bytes;
}

bool StagedOffer::FinishReceiver(bool delivered) {
  if (delivered) ++delivered_;
  return ++finished_receivers_ >= offer_.receivers;
}

// ---- end ---------------------------------------------------------------------------------------

bool StagedOffer::End(const Error& error) {
  std::vector<std::shared_ptr<const ReadyFrame>> dropped;
  std::vector<StagingBudget::Share> shares;
  std::deque<GatheredFrame> waiting;
  const std::lock_guard lock(mutex_);
  if (ended()) return false;
  error_ = error;
  ended_.store(true, std::memory_order_release);
  // Destroyed after the lock is gone.
  dropped.swap(frames_);
  shares.swap(shares_);
  waiting.swap(waiting_);
  changed_.notify_all();
  return true;
}

Clock::time_point StagedOffer::last_use() const {
  return Clock::time_point(Clock::duration(last_use_.load()));
}

OfferReport StagedOffer::Report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

}  // namespace kvserve
