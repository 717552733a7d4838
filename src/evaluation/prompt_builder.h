// From records to prompts: what is context, what is asked, what is a right answer.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/engine.h"
#include "evaluation/evaluation_prompt.h"
#include "evaluation/record.h"

namespace kvserve {

struct PromptOptions {
  std::uint32_t context_tokens = 1536;  // of "lm" texts, whose first tokens are the context
  std::uint32_t scored_tokens = 256;    // of them after that; reference answers are cut to as many
  std::uint32_t generate_tokens = 0;    // greedy tokens after the context of "lm" texts; 0: none
  std::uint32_t max_tokens = 0;         // that a sequence of the engine holds
};

// Nothing when the record is too short for its task, when it does not fit into max_tokens, or when
// its task is not scored. Only "lm" heeds context_tokens: other records bring their own context. Of
// several questions on one context the first four count.
// The context ends before the question, so that the KV is compressed without knowing it, as a KV
// store would; a prompt without context of its own ends before its last token.
[[nodiscard]] Result<std::optional<EvaluationPrompt>> BuildPrompt(const Engine& engine,
                                                                  const Record& record,
                                                                  const PromptOptions& options);

}  // namespace kvserve
