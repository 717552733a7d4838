// Text in and out of a model: tokens, pieces, chat templates. All functions only read the model and
// may run beside the engine's thread.
#pragma once

#include <llama.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace kvserve {

[[nodiscard]] Result<std::vector<Token>> TokenizeText(const llama_vocab* vocab,
                                                      std::string_view text, bool add_special,
                                                      bool parse_special);
// Control tokens are empty text.
[[nodiscard]] std::string PieceOf(const llama_vocab* vocab, Token token);
// By the model's own template, ending where the assistant speaks. kUnsupported: the model has none,
// or one that libllama does not know.
[[nodiscard]] Result<std::string> ApplyChatTemplate(const llama_model* model,
                                                    std::span<const ChatMessage> messages);
// A metadata value as text; empty when absent.
[[nodiscard]] std::string MetadataText(const llama_model* model, const char* key);

}  // namespace kvserve
