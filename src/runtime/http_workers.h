// The threads behind an HttpListener: a bounded queue, and one thread that refuses what is beyond.
#pragma once

#include <httplib.h>

#include <functional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"

namespace kvserve {

// A connection that finds the queue full goes to a thread that answers 503 only. When that thread
// has more than its share too, accepting waits, and the kernel's backlog bounds the rest.
class HttpWorkers final : public httplib::TaskQueue {
 public:
  HttpWorkers(std::size_t threads, std::size_t queue);
  void enqueue(std::function<void()> task) override;
  void shutdown() override;

  // Whether the calling thread is the one that refuses.
  [[nodiscard]] static bool refusing();

 private:
  using Tasks = BoundedQueue<std::function<void()>>;
  static void Work(Tasks& tasks, bool refuse);

  Tasks tasks_;
  Tasks refused_;
  std::vector<std::thread> threads_;
};

}  // namespace kvserve
