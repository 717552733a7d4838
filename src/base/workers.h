// A fixed set of threads that share out the items of a loop, each with scratch memory of its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/arena.h"
#include "kvserve/error.h"

namespace kvserve {

// Run is for one caller at a time and must not be called from within its own work.
class Workers {
 public:
  // `threads` at least 1, the caller of Run included: 1 starts none. Throws std::system_error or
  // std::bad_alloc when the system has no more threads or memory.
  explicit Workers(unsigned threads = 1);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  [[nodiscard]] unsigned threads() const { return static_cast<unsigned>(arenas_.size()); }
  // Time that the other threads have spent on items so far, all of them together.
  [[nodiscard]] std::int64_t helped_nanoseconds() const { return helped_nanoseconds_; }

  // Calls work(i, scratch), which gives a Status, for i in [0, items) in ascending order of their
  // starts, and returns when all are done. `scratch` is the thread's own and is reset after the
  // item. After a failure no further item starts; the error of the lowest failed item is returned.
  // An exception of an item (no memory) is kResourceExhausted. Allocates nothing itself.
  template <typename Function>
  [[nodiscard]] Status Run(std::size_t items, const Function& work) {
    return RunItems(items,
                    {&work, [](const void* function, std::size_t item, Arena& scratch) {
                       return Status((*static_cast<const Function*>(function))(item, scratch));
                     }});
  }

 private:
  struct Work {
    const void* function = nullptr;
    Status (*call)(const void* function, std::size_t item, Arena& scratch) = nullptr;
  };

  [[nodiscard]] Status RunItems(std::size_t items, Work work);
  static Status Guarded(const Work& work, std::size_t item, Arena& scratch);
  void Stop();
  void Serve(std::size_t worker);
  void TakeItems(std::size_t worker);
  void LevelArenas();

  std::vector<std::unique_ptr<Arena>> arenas_;  // [worker]; 0 is the caller's
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  // Under the mutex.
  Work work_;
  bool open_ = false;  // a run is going on
  std::size_t items_ = 0;
  std::size_t next_ = 0;
  unsigned busy_ = 0;
  std::uint64_t round_ = 0;
  std::int64_t helped_nanoseconds_ = 0;
  bool stopping_ = false;
  std::size_t failed_item_ = 0;
  Status failure_;

  std::vector<std::thread> threads_;  // last: it uses all of the above
};

}  // namespace kvserve
