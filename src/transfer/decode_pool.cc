#include "transfer/decode_pool.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/try.h"
#include "frame/frame.h"
#include "net/messages.h"
#include "stages/profile_facts.h"

namespace kvserve {

DecodePool::DecodePool(const PagedCache& cache, const Fingerprint& model, const CodecOptions& codec,
                       std::uint32_t threads)
    : cache_(cache), model_(model) {
  for (std::uint32_t i = 0; i < threads; ++i) {
    auto decoder = FrameDecoder::Create(codec);
    if (!decoder) throw std::bad_alloc();
    scratch_.push_back(std::make_unique<Scratch>(Scratch{std::move(*decoder), {}}));
  }
  try {
    for (const auto& scratch : scratch_) {
      threads_.emplace_back([this, own = scratch.get()] { Run(*own); });
    }
  } catch (...) {
    Stop();
    throw;
  }
}

DecodePool::~DecodePool() {
  Stop();
}

void DecodePool::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void DecodePool::Push(std::shared_ptr<RunningFetch> fetch, Message message) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back({std::move(fetch), std::move(message)});
  changed_.notify_one();
}

void DecodePool::Drop(const RunningFetch& fetch) {
  std::vector<Job> dropped;
  {
    const std::lock_guard lock(mutex_);
    for (auto job = jobs_.begin(); job != jobs_.end();) {
      if (job->fetch.get() != &fetch) {
        ++job;
        continue;
      }
      dropped.push_back(std::move(*job));
      job = jobs_.erase(job);
    }
  }
  for (const Job& job : dropped) job.fetch->CloseJob(0.0);
}

Message DecodePool::Spare() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) return {};
  Message message = std::move(spare_.back());
  spare_.pop_back();
  return message;
}

void DecodePool::Run(Scratch& scratch) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    const auto begin = Clock::now();
    Status status;
    try {
      status = Write(*job.fetch, job.message, scratch);
    } catch (const std::exception& error) {
      status = MakeError(ErrorCode::kResourceExhausted, std::string("no memory: ") + error.what());
    }
    if (!status) job.fetch->Fail(status.error());
    job.fetch->CloseJob(SecondsSince(begin));
    job.fetch.reset();
    lock.lock();
    if (spare_.size() < kMaxSpare) spare_.push_back(std::move(job.message));
  }
}

// The frame's own checksums say that it is intact; the checks say that it is the right one.
Status DecodePool::Write(RunningFetch& fetch, const Message& message, Scratch& scratch) {
  KVSERVE_TRY(fetch.Check());
  KVSERVE_ASSIGN(const Chunk chunk, DecodeChunk(message.payload));
  const FrameGrid& grid = fetch.grid();
  const FrameGrid::Cell cell = grid.At(message.index);
  const std::uint64_t raw_bytes = grid.RawBytes(message.index);
  if (chunk.info.tokens != cell.tokens || chunk.info.raw_bytes != raw_bytes) {
    return MakeError(ErrorCode::kMismatch,
                     "frame " + std::to_string(message.index) + " has tokens " +
                         std::to_string(chunk.info.tokens.begin) + ".." +
                         std::to_string(chunk.info.tokens.end) + " where " +
                         std::to_string(cell.tokens.begin) + ".." +
                         std::to_string(cell.tokens.end) + " are due, or other bytes of them");
  }
  const auto prefix = std::span(fetch.request().tokens).first(cell.tokens.end);
  const DecodeOptions options{model_, PrefixKey(fetch.seed(), prefix), raw_bytes};
  KVSERVE_ASSIGN(const std::size_t used, scratch.decoder.Decode(chunk.frame, options, scratch.kv));
  if (used != chunk.frame.size()) {
    return MakeError(ErrorCode::kCorruptData, "bytes follow the frame of a chunk");
  }
  if (!scratch.decoder.dropped().empty() || scratch.decoder.partly_dropped()) {
    return MakeError(ErrorCode::kUnsupported,
                     "the frame leaves tokens out, which a paged cache cannot do");
  }
  KVSERVE_TRY(CheckFrame(fetch, message.index, chunk.frame, scratch.kv));
  KVSERVE_TRY(fetch.Check());
  // The geometry of a frame of some layers says little of the others.
  ConstKvView view = std::as_const(scratch.kv).view();
  view.geometry = &cache_.geometry;
  return ScatterTokens(view, fetch.request().wanted, fetch.request().tables, cache_);
}

Status DecodePool::CheckFrame(RunningFetch& fetch, std::uint32_t index,
                              std::span<const std::byte> frame, const KvBuffer& kv) const {
  KVSERVE_ASSIGN(const FrameView read, ReadFrame(frame));
  const FrameHeader& header = read.header;
  const bool fits =
      header.dtype == cache_.geometry.dtype &&
      header.model_layers == cache_.geometry.layers.size() &&
      std::all_of(header.layers.begin(), header.layers.end(), [&](const FrameLayer& layer) {
        return layer.geometry == cache_.geometry.layers[layer.layer];
      });
  const auto held = fetch.grid().Held(index);
  const bool complete =
      std::equal(header.layers.begin(), header.layers.end(), held.begin(), held.end(),
                 [](const FrameLayer& layer, const KvBuffer::LayerTokens& due) {
                   return layer.layer == due.layer && layer.tokens == due.tokens;
                 });
  if (!fits || !complete || kv.tokens() != fetch.grid().At(index).tokens) {
    return MakeError(ErrorCode::kMismatch, "frame " + std::to_string(index) +
                                               " has other layers, tokens or another geometry");
  }
  bool drifted = false;
  if (fetch.IsAnnounced(header.stages, drifted)) {
    if (drifted) fetch.CountDrift();
    return {};
  }
  return MakeError(ErrorCode::kMismatch, "frame " + std::to_string(index) +
                                             " is not coded by the profile that was announced");
}

}  // namespace kvserve
