// A prompt whose context has been computed once: its KV, and what the model says with it untouched.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "evaluation/captured_queries.h"
#include "evaluation/evaluation_prompt.h"
#include "evaluation/probe_runner.h"
#include "kvserve/view.h"

namespace kvserve {

struct PreparedPrompt {
  KvBuffer kv;                             // all of the context; window layers hold their window
  CapturedQueries queries;                 // empty unless they were wanted
  std::vector<ProbeReference> references;  // [probe]
};

// Closes its sequence on every way out.
class OpenedSequence {
 public:
  [[nodiscard]] static Result<OpenedSequence> Open(Engine& engine);
  OpenedSequence(OpenedSequence&& other) noexcept;
  OpenedSequence& operator=(OpenedSequence&& other) = delete;
  ~OpenedSequence();
  [[nodiscard]] SequenceId id() const { return id_; }

 private:
  OpenedSequence(Engine& engine, SequenceId id) : engine_(&engine), id_(id) {}

  Engine* engine_;
  SequenceId id_;
};

// Prefills `context` in a sequence of its own, `chunk_tokens` at a time, and copies its KV out; its
// queries too unless null.
[[nodiscard]] Status CaptureContext(Engine& engine, std::span<const Token> context,
                                    std::uint32_t chunk_tokens, KvBuffer& kv,
                                    CapturedQueries* queries = nullptr);

// The reference of every probe, behind the KV as it was captured.
[[nodiscard]] Result<std::vector<ProbeReference>> ReferencesOf(Engine& engine,
                                                               const EvaluationPrompt& prompt,
                                                               const KvBuffer& kv);

}  // namespace kvserve
