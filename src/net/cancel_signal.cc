#include "net/cancel_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace kvserve {

CancelSignal::CancelSignal() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

CancelSignal::~CancelSignal() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void CancelSignal::Cancel() {
  const int saved_errno = errno;
  if (!cancelled_.exchange(true, std::memory_order_acq_rel) && descriptor_ >= 0) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(descriptor_, &one, sizeof(one));
  }
  errno = saved_errno;
}

}  // namespace kvserve
