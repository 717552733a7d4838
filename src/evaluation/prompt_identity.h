// What makes two prompts the same.
#pragma once

#include <span>
#include <string>

#include "base/byte_io.h"
#include "evaluation/evaluation_prompt.h"
#include "kvserve/geometry.h"

namespace kvserve {

void PutTokens(std::span<const Token> tokens, ByteWriter& out);
// What is asked behind the prompt's context.
void PutProbes(const EvaluationPrompt& prompt, ByteWriter& out);

// Digest of a model (weights and cache dtype) and the prompts in their order: scores compare only
// if it is the same.
[[nodiscard]] std::string PromptsDigest(const Fingerprint& model,
                                        std::span<const EvaluationPrompt> prompts);

}  // namespace kvserve
