#include "evaluation/lm_prompt.h"

#include <algorithm>

#include "base/try.h"

namespace kvserve {
namespace {

// Closes its sequence on every way out.
class OpenedSequence {
 public:
  OpenedSequence(Engine& engine, SequenceId id) : engine_(engine), id_(id) {}
  ~OpenedSequence() { engine_.CloseSequence(id_); }
  OpenedSequence(const OpenedSequence&) = delete;
  OpenedSequence& operator=(const OpenedSequence&) = delete;
  [[nodiscard]] SequenceId id() const { return id_; }

 private:
  Engine& engine_;
  SequenceId id_;
};

}  // namespace

Result<std::vector<KvBuffer>> CaptureFrames(Engine& engine, std::span<const Token> context,
                                            const LmOptions& options) {
  KVSERVE_ASSIGN(const SequenceId id, engine.OpenSequence());
  const OpenedSequence sequence(engine, id);
  const auto total = static_cast<std::uint32_t>(context.size());
  for (std::uint32_t begin = 0; begin < total;) {
    const std::uint32_t count = std::min(options.chunk_tokens, total - begin);
    KVSERVE_TRY(engine.Prefill(id, context.subspan(begin, count), begin));
    begin += count;
  }
  // At the end of the prefill window layers hold exactly what a receiver needs, so nothing has to
  // be copied earlier.
  std::vector<KvBuffer> frames;
  for (std::uint32_t begin = 0; begin < total;) {
    const std::uint32_t end = begin + std::min(options.frame_tokens, total - begin);
    KVSERVE_TRY(engine.Capture(id, {begin, end}, total, frames.emplace_back()));
    begin = end;
  }
  return frames;
}

Result<std::vector<float>> ScoreBehind(Engine& engine, std::span<const KvBuffer> frames,
                                       std::span<const Token> tokens) {
  KVSERVE_ASSIGN(const SequenceId id, engine.OpenSequence());
  const OpenedSequence sequence(engine, id);
  for (const KvBuffer& frame : frames) KVSERVE_TRY(engine.Inject(id, frame.view()));
  return engine.Score(id, tokens, frames.empty() ? 0 : frames.back().tokens().end);
}

}  // namespace kvserve
