#include "runtime/engine_worker.h"

namespace kvserve {

Result<std::unique_ptr<EngineWorker>> EngineWorker::Start(Opener open) {
  std::unique_ptr<EngineWorker> worker(new EngineWorker);
  std::promise<Status> opened;
  auto status = opened.get_future();
  worker->thread_ =
      std::thread([raw = worker.get(), open = std::move(open),
                   opened = std::move(opened)]() mutable { raw->Loop(open, std::move(opened)); });
  if (Status answer = status.get(); !answer) return tl::unexpected(answer.error());
  return worker;
}

EngineWorker::~EngineWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::size_t EngineWorker::queued() const {
  const std::lock_guard lock(mutex_);
  return tasks_.size();
}

void EngineWorker::Enqueue(std::function<void(Engine&)> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void EngineWorker::Loop(const Opener& open, std::promise<Status> opened) {
  auto engine = open();
  if (!engine) {
    opened.set_value(tl::unexpected(engine.error()));
    return;
  }
  engine_ = std::move(*engine);
  opened.set_value({});
  for (;;) {
    std::function<void(Engine&)> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) break;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(*engine_);
  }
  engine_.reset();  // its thread pool belongs to this thread
}

}  // namespace kvserve
