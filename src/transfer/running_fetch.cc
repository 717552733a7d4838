#include "transfer/running_fetch.h"

#include <utility>

#include "base/try.h"
#include "kvserve/codec.h"
#include "stages/profile_facts.h"
#include "transfer/prefix_seed.h"

namespace kvserve {

RunningFetch::RunningFetch(FetchRequest request, HostPort address, const Fingerprint& model,
                           const KvGeometry& geometry)
    : request_(std::move(request)),
      address_(std::move(address)),
      geometry_(geometry),
      seed_(PrefixSeed(model, request_.context)),
      deadline_(After(request_.deadline_s)) {
  report_.id = request_.id;
  report_.ticket = request_.ticket;
}

void RunningFetch::Fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (error_) return;
  error_ = std::move(error);
  if (cancel_) cancel_->Cancel();
  changed_.notify_all();
}

Status RunningFetch::Check() {
  if (Clock::now() >= deadline_) {
    Fail({ErrorCode::kDeadlineExceeded, "the fetch's deadline has passed"});
  }
  const std::lock_guard lock(mutex_);
  if (error_) return tl::unexpected(*error_);
  return {};
}

// ---- transfer ----------------------------------------------------------------------------------

Status RunningFetch::BeginTransfer() {
  auto cancel = std::make_unique<TransferCancel>();
  const std::lock_guard lock(mutex_);
  if (error_) return tl::unexpected(*error_);
  cancel_ = std::move(cancel);
  return {};
}

// Ids of the profile's stages; returns whether it is lossless.
Result<bool> RunningFetch::TakeStages(const std::string& text,
                                      std::vector<std::uint16_t>& stages) const {
  KVSERVE_ASSIGN(const Profile profile, ParseProfile(text));
  KVSERVE_ASSIGN(const ProfileFacts facts,
                 FactsOf(profile.stages, geometry_.dtype, ProfileOrigin::kCaller));
  KVSERVE_TRY(CheckKeepsTokens(facts));
  stages.clear();
  for (const StageSpec& stage : profile.stages) stages.push_back(stage.id);
  return facts.lossless;
}

Status RunningFetch::Start(const FetchStarted& started) {
  report_.profile = started.profile;
  KVSERVE_ASSIGN(lossless_, TakeStages(started.profile, stages_));
  fallback_stages_.clear();
  if (!started.fallback.empty()) KVSERVE_TRY(TakeStages(started.fallback, fallback_stages_));
  KVSERVE_ASSIGN(grid_, FrameGrid::Create(geometry_, total_tokens(), started.frame_tokens,
                                          started.layers_per_frame));
  const std::uint32_t frames = grid_->CountWanted(request_.wanted.begin);
  if (started.frames != frames || grid_->layers_per_frame() != started.layers_per_frame) {
    return MakeError(ErrorCode::kMismatch, "the sender announces " +
                                               std::to_string(started.frames) + " frames where " +
                                               std::to_string(frames) + " are due");
  }
  arrived_.assign(grid_->frames(), false);
  return {};
}

bool RunningFetch::IsAnnounced(std::span<const StageSpec> stages, bool& drifted) const {
  const auto are = [&](const std::vector<std::uint16_t>& ids) {
    return std::equal(stages.begin(), stages.end(), ids.begin(), ids.end(),
                      [](const StageSpec& stage, std::uint16_t id) { return stage.id == id; });
  };
  drifted = !fallback_stages_.empty() && !are(stages_) && are(fallback_stages_);
  return IsLossless({stages.begin(), stages.end()}) || (!lossless_ && (drifted || are(stages_)));
}

Status RunningFetch::Expect(std::uint32_t index) {
  if (index >= arrived_.size() || !grid_->IsWanted(index, request_.wanted.begin)) {
    return MakeError(ErrorCode::kMismatch, "frame " + std::to_string(index) + " is not wanted");
  }
  if (arrived_[index]) {
    return MakeError(ErrorCode::kMismatch, "frame " + std::to_string(index) + " came twice");
  }
  arrived_[index] = true;
  return {};
}

// ---- jobs --------------------------------------------------------------------------------------

Status RunningFetch::OpenJob(std::uint32_t limit) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline_, [&] { return error_ || jobs_ < limit; })) {
    return MakeError(ErrorCode::kDeadlineExceeded, "the fetch's deadline has passed");
  }
  if (error_) return tl::unexpected(*error_);
  ++jobs_;
  return {};
}

void RunningFetch::CloseJob(double decode_s) {
  const std::lock_guard lock(mutex_);
  --jobs_;
  decode_s_ += decode_s;
  changed_.notify_all();
}

void RunningFetch::CountDrift() {
  const std::lock_guard lock(mutex_);
  ++drift_fallbacks_;
}

std::uint32_t RunningFetch::drift_fallbacks() const {
  const std::lock_guard lock(mutex_);
  return drift_fallbacks_;
}

Status RunningFetch::AwaitJobs() {
  {
    std::unique_lock lock(mutex_);
    (void)changed_.wait_until(lock, deadline_, [&] { return error_ || jobs_ == 0; });
  }
  return Check();
}

void RunningFetch::WaitForJobs() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_ == 0; });
}

double RunningFetch::decode_s() const {
  const std::lock_guard lock(mutex_);
  return decode_s_;
}

}  // namespace kvserve
