// Cancels whatever one request does on the network: connecting, the handshake, a transfer.
#pragma once

#include <mutex>

#include "net/cancel_signal.h"
#include "net/connection.h"

namespace kvserve {

// Cancel may be called from any thread, any number of times; it never blocks.
class TransferCancel {
 public:
  void Cancel() {
    signal_.Cancel();
    const std::lock_guard lock(mutex_);
    if (connection_ != nullptr) connection_->Cancel();
  }
  [[nodiscard]] const CancelSignal& signal() const { return signal_; }

  // Cancel also cancels `connection` until the watch ends. One watch at a time.
  class Watch {
   public:
    Watch(TransferCancel& cancel, Connection& connection) : cancel_(cancel) {
      const std::lock_guard lock(cancel_.mutex_);
      cancel_.connection_ = &connection;
      if (cancel_.signal_.cancelled()) connection.Cancel();
    }
    ~Watch() {
      const std::lock_guard lock(cancel_.mutex_);
      cancel_.connection_ = nullptr;
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    TransferCancel& cancel_;
  };

 private:
  CancelSignal signal_;
  std::mutex mutex_;
  Connection* connection_ = nullptr;
};

}  // namespace kvserve
