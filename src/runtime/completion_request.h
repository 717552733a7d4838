// The part of the OpenAI completion and chat requests that a decode node understands.
#pragma once

#include <string>
#include <string_view>

#include "engine/engine.h"
#include "runtime/decode_node.h"

namespace kvserve {

enum class Endpoint { kCompletions, kChat };

struct CompletionRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;  // empty: not named
  GenerateRequest generate;
  bool stream = false;
  bool return_token_ids = false;
};

// Parses and tokenizes a body. Everything is checked: a field that this server does not know, or
// that asks for something it does not do, is kInvalidArgument naming the field; a neutral value of
// a known OpenAI field (n: 1, echo: false, null) is accepted. Without max_tokens, completions get
// 16 and chat what the context leaves. Nesting beyond 32 is refused before parsing.
[[nodiscard]] Result<CompletionRequest> ParseCompletionRequest(Endpoint endpoint,
                                                               std::string_view body,
                                                               const Engine& text);

}  // namespace kvserve
