// Owners of libllama's objects, and a batch of one sequence's tokens.
#pragma once

#include <llama.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace kvserve {

struct LlamaModelDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
using LlamaModel = std::unique_ptr<llama_model, LlamaModelDeleter>;

struct LlamaContextDeleter {
  void operator()(llama_context* context) const { llama_free(context); }
};
using LlamaContext = std::unique_ptr<llama_context, LlamaContextDeleter>;

// Tokens of one sequence at consecutive positions; refers to `tokens`.
class TokenBatch {
 public:
  TokenBatch(SequenceId sequence, std::span<const Token> tokens, std::uint32_t first_position,
             bool logits)
      : sequence_(sequence),
        positions_(tokens.size()),
        counts_(tokens.size(), 1),
        sequences_(tokens.size(), &sequence_),
        logits_(tokens.size(), logits ? 1 : 0) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      positions_[i] = static_cast<llama_pos>(first_position + i);
    }
    batch_.n_tokens = static_cast<std::int32_t>(tokens.size());
    batch_.token = const_cast<llama_token*>(tokens.data());  // libllama only reads it
    batch_.pos = positions_.data();
    batch_.n_seq_id = counts_.data();
    batch_.seq_id = sequences_.data();
    batch_.logits = logits_.data();
  }
  TokenBatch(const TokenBatch&) = delete;
  TokenBatch& operator=(const TokenBatch&) = delete;

  [[nodiscard]] const llama_batch& get() const { return batch_; }

 private:
  llama_seq_id sequence_;
  std::vector<llama_pos> positions_;
  std::vector<std::int32_t> counts_;
  std::vector<llama_seq_id*> sequences_;
  std::vector<std::int8_t> logits_;
  llama_batch batch_{};
};

}  // namespace kvserve
