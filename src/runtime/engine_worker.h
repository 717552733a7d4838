// One thread that owns the Engine and runs closures on it in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "engine/engine.h"

namespace kvserve {

// An OpenMP pool belongs to the thread that computes, so every engine call has to come from one
// thread. Requests take turns by first-in, first-out: each has at most one call in the queue, which
// makes the order a round-robin. Thread-safe. Destroy it after all callers have returned.
class EngineWorker {
 public:
  using Opener = std::function<Result<std::unique_ptr<Engine>>()>;

  // Opens the engine on the new thread.
  [[nodiscard]] static Result<std::unique_ptr<EngineWorker>> Start(Opener open);
  ~EngineWorker();
  EngineWorker(const EngineWorker&) = delete;
  EngineWorker& operator=(const EngineWorker&) = delete;

  // Runs `body(Engine&)` on the engine thread and returns what it returns.
  template <typename Body>
  auto Run(Body&& body) -> std::invoke_result_t<Body, Engine&> {
    return RunAsync(std::forward<Body>(body)).get();
  }
  template <typename Body>
  auto RunAsync(Body&& body) -> std::future<std::invoke_result_t<Body, Engine&>> {
    using Answer = std::invoke_result_t<Body, Engine&>;
    auto task = std::make_shared<std::packaged_task<Answer(Engine&)>>(std::forward<Body>(body));
    auto answer = task->get_future();
    Enqueue([task](Engine& engine) { (*task)(engine); });
    return answer;
  }

  // For the calls that are safe beside the engine thread: info and text.
  [[nodiscard]] const Engine& text() const { return *engine_; }
  [[nodiscard]] const ModelInfo& info() const { return engine_->info(); }
  [[nodiscard]] std::size_t queued() const;

 private:
  EngineWorker() = default;
  void Enqueue(std::function<void(Engine&)> task);
  void Loop(const Opener& open, std::promise<Status> opened);

  std::unique_ptr<Engine> engine_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void(Engine&)>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvserve
