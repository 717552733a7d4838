#include "calibration/engine_source.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "calibration/opened_sequence.h"

namespace kvserve {

EngineSource::EngineSource(Engine& engine, std::vector<std::vector<Token>> prompts,
                           std::uint32_t prefill_tokens)
    : engine_(engine), prompts_(std::move(prompts)), prefill_tokens_(prefill_tokens) {}

std::uint64_t EngineSource::tokens() const {
  std::uint64_t sum = 0;
  for (const auto& prompt : prompts_) sum += prompt.size();
  return sum;
}

Status EngineSource::ForEachChunk(std::uint32_t chunk_tokens,
                                  const std::function<Status(const ConstKvView&)>& visit) {
  for (const auto& prompt : prompts_) KVSERVE_TRY(VisitPrompt(prompt, chunk_tokens, visit));
  return {};
}

Status EngineSource::VisitPrompt(std::span<const Token> prompt, std::uint32_t chunk_tokens,
                                 const std::function<Status(const ConstKvView&)>& visit) {
  KVSERVE_ASSIGN(const SequenceId id, engine_.OpenSequence());
  const OpenedSequence sequence(engine_, id);
  const auto total = static_cast<std::uint32_t>(prompt.size());
  std::uint32_t evaluated = 0;
  for (std::uint32_t begin = 0; begin < total;) {
    const std::uint32_t end = begin + std::min(chunk_tokens, total - begin);
    while (evaluated < end) {
      const std::uint32_t count = std::min(prefill_tokens_, end - evaluated);
      KVSERVE_TRY(engine_.Prefill(id, prompt.subspan(evaluated, count), evaluated));
      evaluated += count;
    }
    KVSERVE_TRY(engine_.Capture(id, {begin, end}, end, chunk_));
    KVSERVE_TRY(visit(std::as_const(chunk_).view()));
    begin = end;
  }
  return {};
}

}  // namespace kvserve
