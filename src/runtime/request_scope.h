// The life of one request: its deadline, the first error, and who has to be woken by it.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "kvserve/error.h"

namespace kvserve {

// Thread-safe. The first failure wins and runs the wake-ups once; they must not block.
class RequestScope {
 public:
  explicit RequestScope(Deadline deadline) : deadline_(deadline) {}

  // The first error; passes the deadline as one.
  [[nodiscard]] Status Check();
  // Also an error when `alive` says no: kCancelled, or the reason with which `alive` failed the
  // scope itself.
  [[nodiscard]] Status Check(const std::function<bool()>& alive);
  void Fail(Error error);
  // Runs at once if the request has already failed. `wake` must stay callable for the scope's life.
  void OnFailure(std::function<void()> wake);
  [[nodiscard]] Deadline deadline() const { return deadline_; }

 private:
  const Deadline deadline_;
  std::mutex mutex_;
  std::optional<Error> error_;
  std::vector<std::function<void()>> wake_ups_;
};

}  // namespace kvserve
