#include "runtime/request_scope.h"

#include <utility>

namespace kvserve {

Status RequestScope::Check() {
  if (Clock::now() >= deadline_) {
    Fail({ErrorCode::kDeadlineExceeded, "the request's deadline has passed"});
  }
  const std::lock_guard lock(mutex_);
  if (error_) return tl::unexpected(*error_);
  return {};
}

Status RequestScope::Check(const std::function<bool()>& alive) {
  if (!alive()) Fail({ErrorCode::kCancelled, "the client has gone"});
  return Check();
}

void RequestScope::Fail(Error error) {
  std::vector<std::function<void()>> wake_ups;
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = std::move(error);
    wake_ups.swap(wake_ups_);
  }
  for (const auto& wake : wake_ups) wake();
}

void RequestScope::OnFailure(std::function<void()> wake) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) {
      wake_ups_.push_back(std::move(wake));
      return;
    }
  }
  wake();
}

}  // namespace kvserve
