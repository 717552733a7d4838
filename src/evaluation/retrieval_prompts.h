// Prompts that ask for something that the context says once: passkeys, values of keys, one needle
// of several.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "evaluation/evaluation_prompt.h"

namespace kvserve {

struct RetrievalOptions {
  std::uint32_t context_tokens = 1536;
  std::uint32_t prompts_per_kind = 8;
  std::uint64_t seed = 1;  // other seeds give other texts, keys and places
};

// Sets "passkey" (a number stated twice in one place), "key_value" (one of four pairs that
// stand together) and "needle" (one of four statements at different depths), each
// `prompts_per_kind` times with depths spread evenly over the context, exactly context_tokens long.
// The rest is prose made of our own sentences. The same options and vocabulary give the same tokens
// on every machine. kInvalidArgument when the context is too short (128 tokens are enough).
[[nodiscard]] Result<std::vector<EvaluationPrompt>> MakeRetrievalPrompts(
    const Engine& engine, const RetrievalOptions& options);

}  // namespace kvserve
