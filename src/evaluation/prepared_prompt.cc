#include "evaluation/prepared_prompt.h"

#include <algorithm>

#include "base/token_slice.h"
#include "base/try.h"

namespace kvserve {
namespace {

// An engine copies what it takes in: pieces bound that memory.
constexpr std::uint32_t kInjectTokens = 1024;

}  // namespace

Result<OpenedSequence> OpenedSequence::Open(Engine& engine) {
  KVSERVE_ASSIGN(const SequenceId id, engine.OpenSequence());
  return OpenedSequence(engine, id);
}

OpenedSequence::OpenedSequence(OpenedSequence&& other) noexcept
    : engine_(other.engine_), id_(other.id_) {
  other.engine_ = nullptr;
}

OpenedSequence::~OpenedSequence() {
  if (engine_ != nullptr) engine_->CloseSequence(id_);
}

Status CaptureContext(Engine& engine, std::span<const Token> context, std::uint32_t chunk_tokens,
                      KvBuffer& kv, CapturedQueries* queries) {
  KVSERVE_ASSIGN(const OpenedSequence sequence, OpenedSequence::Open(engine));
  if (queries != nullptr) KVSERVE_TRY(queries->Start(engine));
  const auto total = static_cast<std::uint32_t>(context.size());
  Status prefilled;
  for (std::uint32_t begin = 0; begin < total && prefilled;) {
    const std::uint32_t count = std::min(chunk_tokens, total - begin);
    prefilled = engine.Prefill(sequence.id(), context.subspan(begin, count), begin);
    begin += count;
  }
  if (queries != nullptr) queries->Stop(engine);
  KVSERVE_TRY(prefilled);
  // At the end of the prefill window layers hold exactly what a receiver needs, so nothing has to
  // be copied earlier.
  return engine.Capture(sequence.id(), {0, total}, total, kv);
}

Result<std::vector<ProbeReference>> ReferencesOf(Engine& engine, const EvaluationPrompt& prompt,
                                                 const KvBuffer& kv) {
  KVSERVE_ASSIGN(const OpenedSequence sequence, OpenedSequence::Open(engine));
  const std::uint32_t total = kv.tokens().end;
  for (std::uint32_t begin = 0; begin < total;) {
    const std::uint32_t end = begin + std::min(kInjectTokens, total - begin);
    KVSERVE_TRY(engine.Inject(sequence.id(), SliceTokens(kv.view(), {begin, end})));
    begin = end;
  }
  ProbeRunner runner(engine, sequence.id(), total);
  std::vector<ProbeReference> references;
  for (const Probe& probe : prompt.probes) {
    KVSERVE_ASSIGN(references.emplace_back(), runner.Reference(probe));
  }
  return references;
}

}  // namespace kvserve
