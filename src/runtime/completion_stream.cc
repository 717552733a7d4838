#include "runtime/completion_stream.h"

namespace kvserve {

CompletionStream::CompletionStream(DecodeNode& node, CompletionRequest request)
    : node_(node),
      request_(std::move(request)),
      format_(request_, node.worker().info().name),
      thread_([this] { Generate(); }) {}

CompletionStream::~CompletionStream() {
  cancelled_ = true;
  events_.Close();
  thread_.join();
}

std::optional<std::string> CompletionStream::Next(std::chrono::milliseconds wait) {
  return events_.PopFor(wait);
}

bool CompletionStream::Emit(std::string event) {
  emitted_ = true;
  return events_.Push(std::move(event));
}

void CompletionStream::Generate() {
  std::vector<Token> pending;  // tokens whose text is not complete yet
  const auto report = node_.Generate(
      request_.generate, [this] { return !cancelled_; },
      [&](std::optional<Token> token, std::string_view text) {
        if (token) pending.push_back(*token);
        if (text.empty()) return !cancelled_.load();
        return Emit(format_.Piece(text, std::exchange(pending, {})));
      });
  bool open = true;
  if (!report && !emitted_) {
    early_error_ = report.error();
  } else if (!report) {
    open = Emit("data: " + FormatError(report.error()).body + "\n\n");
  } else {
    if (!pending.empty()) open = Emit(format_.Piece("", pending));
    open = open && Emit(format_.Last(*report));
  }
  if (open && !early_error_) open = Emit(CompletionFormat::Done());
  events_.Close();
}

}  // namespace kvserve
