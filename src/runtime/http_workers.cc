#include "runtime/http_workers.h"

namespace kvserve {
namespace {

constexpr std::size_t kRefusedAtOnce = 16;
thread_local bool this_thread_refuses = false;

}  // namespace

HttpWorkers::HttpWorkers(std::size_t threads, std::size_t queue)
    : tasks_(queue), refused_(kRefusedAtOnce) {
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(tasks_, false); });
  threads_.emplace_back([this] { Work(refused_, true); });
}

bool HttpWorkers::refusing() {
  return this_thread_refuses;
}

void HttpWorkers::Work(Tasks& tasks, bool refuse) {
  this_thread_refuses = refuse;
  while (const auto task = tasks.Pop()) (*task)();
}

void HttpWorkers::enqueue(std::function<void()> task) {
  // The task owns the socket and has to run, whatever happens.
  if (tasks_.TryPush(task)) return;
  if (!refused_.Push(task)) task();
}

void HttpWorkers::shutdown() {
  tasks_.Close();
  refused_.Close();
  for (auto& thread : threads_) thread.join();
}

}  // namespace kvserve
