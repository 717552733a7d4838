// A generation in a thread of its own whose events another thread sends to the client.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "base/bounded_queue.h"
#include "runtime/completion_format.h"
#include "runtime/completion_request.h"
#include "runtime/decode_node.h"

namespace kvserve {

// The status of a response has to be known before its first byte, so the generation begins before
// the response: whoever owns this waits for the first event, or for the error instead of it.
class CompletionStream {
 public:
  CompletionStream(DecodeNode& node, CompletionRequest request);
  // Cancels the generation if it still runs.
  ~CompletionStream();
  CompletionStream(const CompletionStream&) = delete;
  CompletionStream& operator=(const CompletionStream&) = delete;

  // The next event, waiting up to `wait`. Empty and ended(): no more.
  [[nodiscard]] std::optional<std::string> Next(std::chrono::milliseconds wait);
  [[nodiscard]] bool ended() const { return events_.drained(); }
  // Set before the end if the generation failed before its first event.
  [[nodiscard]] const std::optional<Error>& early_error() const { return early_error_; }

 private:
  void Generate();
  [[nodiscard]] bool Emit(std::string event);

  DecodeNode& node_;
  const CompletionRequest request_;
  CompletionFormat format_;
  std::atomic<bool> cancelled_{false};
  bool emitted_ = false;  // the generating thread's
  std::optional<Error> early_error_;
  BoundedQueue<std::string> events_{64};
  std::thread thread_;
};

}  // namespace kvserve
