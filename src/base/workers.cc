// Items are large (hundreds of microseconds), so one mutex over the counter costs nothing that can
// be measured, and keeps the order of starts.
#include "base/workers.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <string>

namespace kvserve {

Workers::Workers(unsigned threads) {
  const unsigned count = std::max(threads, 1U);
  for (unsigned i = 0; i < count; ++i) arenas_.push_back(std::make_unique<Arena>());
  try {
    for (unsigned i = 1; i < count; ++i) {
      threads_.emplace_back([this, i] { Serve(i); });
    }
  } catch (...) {  // no destructor follows, and threads that nobody joins end the program
    Stop();
    throw;
  }
}

Workers::~Workers() {
  Stop();
}

void Workers::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (auto& thread : threads_) thread.join();
}

Status Workers::Guarded(const Work& work, std::size_t item, Arena& scratch) {
  try {
    return work.call(work.function, item, scratch);
  } catch (const std::exception& error) {  // bad_alloc or length_error
    return MakeError(ErrorCode::kResourceExhausted, std::string("no memory: ") + error.what());
  }
}

Status Workers::RunItems(std::size_t items, Work work) {
  if (items == 0) return {};
  {
    const std::lock_guard lock(mutex_);
    work_ = work;
    open_ = true;
    items_ = items;
    next_ = 0;
    failure_ = {};
    ++round_;
    busy_ = 1;
  }
  if (items > 1) start_.notify_all();
  TakeItems(0);
  std::unique_lock lock(mutex_);
  --busy_;
  done_.wait(lock, [this] { return busy_ == 0; });
  open_ = false;
  LevelArenas();
  return std::move(failure_);
}

// Which thread meets the largest item is chance: after one run each holds what any has needed, so
// that later runs take no more. Address space, until it is used.
void Workers::LevelArenas() {
  std::size_t most = 0;
  for (const auto& arena : arenas_) most = std::max(most, arena->capacity());
  try {
    for (const auto& arena : arenas_) arena->ResetAndReserve(most);
  } catch (const std::bad_alloc&) {  // then they grow when they have to
  }
}

void Workers::Serve(std::size_t worker) {
  std::uint64_t served = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    start_.wait(lock, [&] { return stopping_ || (round_ != served && open_); });
    if (stopping_) return;
    served = round_;
    ++busy_;
    lock.unlock();
    const auto start = std::chrono::steady_clock::now();
    TakeItems(worker);
    const auto end = std::chrono::steady_clock::now();
    lock.lock();
    helped_nanoseconds_ += std::chrono::nanoseconds(end - start).count();
    if (--busy_ == 0) done_.notify_one();
  }
}

void Workers::TakeItems(std::size_t worker) {
  for (;;) {
    std::size_t item = 0;
    Work work;
    {
      const std::lock_guard lock(mutex_);
      if (next_ == items_) return;
      item = next_++;
      work = work_;
    }
    Status status = Guarded(work, item, *arenas_[worker]);
    arenas_[worker]->Reset();
    if (status) continue;
    const std::lock_guard lock(mutex_);
    if (failure_ || item < failed_item_) {
      failed_item_ = item;
      failure_ = std::move(status);
    }
    next_ = items_;
  }
}

}  // namespace kvserve
