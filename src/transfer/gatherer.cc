#include "transfer/gatherer.h"

#include <exception>
#include <string>
#include <utility>

#include "base/try.h"

namespace kvserve {

Gatherer::Gatherer(const PagedCache& cache, TicketTable& tickets, BufferPool& buffers,
                   EncodePool& encoders)
    : cache_(cache), tickets_(tickets), buffers_(buffers), encoders_(encoders) {
  thread_ = std::thread([this] { Run(); });
}

Gatherer::~Gatherer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Gatherer::Push(Work work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  ++pushed_;
  changed_.notify_all();
}

void Gatherer::WaitRead() {
  std::unique_lock lock(mutex_);
  const std::uint64_t target = pushed_;
  changed_.wait(lock, [&] { return read_ >= target || stopping_; });
}

void Gatherer::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !work_.empty(); });
    if (stopping_) return;
    Work work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    Status status;
    try {
      if (!work.offer->ended()) status = Read(work);
    } catch (const std::exception& error) {
      status = MakeError(ErrorCode::kResourceExhausted, std::string("no memory: ") + error.what());
    }
    if (!status) tickets_.End(*work.offer, OfferOutcome::kFailed, status.error());
    work = {};  // before it counts as read, so that its buffers are back by then
    lock.lock();
    ++read_;
    changed_.notify_all();
  }
}

Status Gatherer::Read(const Work& work) {
  std::vector<GatheredFrame> complete;
  KVSERVE_TRY(work.offer->Gather(cache_, work.tables, work.tokens, work.first_layer, work.layers,
                                 buffers_, complete));
  for (GatheredFrame& frame : complete) encoders_.Push(work.offer, std::move(frame));
  return {};
}

}  // namespace kvserve
