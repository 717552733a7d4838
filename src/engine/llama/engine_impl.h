// The embedded engine's class; OpenLlamaEngine makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/llama/cache_layout.h"
#include "engine/llama/handles.h"
#include "engine/llama/llama_engine.h"
#include "engine/llama/model_text.h"
#include "engine/llama/output_weights.h"
#include "engine/llama/query_recorder.h"

namespace kvserve {

struct LlamaSequence {
  LlamaContext context;
  bool open = false;
  std::uint32_t next = 0;          // position of the next token
  std::uint32_t window_begin = 0;  // window layers hold [window_begin, next)
};

// Every sequence has a context of its own over the shared weights: with an F16 cache libllama sums
// attention in tiles of cells, so in a shared cache the last bits of a prefill would depend on
// where other sequences lie; and cells of others cost time. Inside a context, kCells holds the
// sequence and chunks pass through kScratch, because a saved state is always a whole sequence and
// loading one empties its sequence first.
class LlamaEngine final : public Engine {
 public:
  LlamaEngine(const LlamaOptions& options, LlamaModel model, std::vector<LlamaContext> contexts,
              std::unique_ptr<QueryRecorder> queries, CacheLayout layout, ModelInfo info)
      : model_path_(options.model_path),
        chunk_tokens_(options.chunk_tokens),
        model_(std::move(model)),
        vocab_(llama_model_get_vocab(model_.get())),
        queries_(std::move(queries)),
        layout_(std::move(layout)),
        info_(std::move(info)) {
    for (LlamaContext& context : contexts) sequences_.emplace_back().context = std::move(context);
    for (std::size_t cache = 0; cache < layout_.slots.size(); ++cache) {
      window_tokens_ = std::max(window_tokens_, layout_.window_tokens(cache));
    }
  }

  [[nodiscard]] const ModelInfo& info() const override { return info_; }
  [[nodiscard]] Result<std::vector<Token>> Tokenize(std::string_view text, bool add_special,
                                                    bool parse_special) const override {
    return TokenizeText(vocab_, text, add_special, parse_special);
  }
  [[nodiscard]] std::string TokenText(Token token) const override { return PieceOf(vocab_, token); }
  [[nodiscard]] Result<std::string> ChatPrompt(
      std::span<const ChatMessage> messages) const override {
    return ApplyChatTemplate(model_.get(), messages);
  }
  [[nodiscard]] bool EndsGeneration(Token token) const override {
    return token >= 0 && static_cast<std::uint32_t>(token) < info_.vocabulary &&
           llama_vocab_is_eog(vocab_, token);
  }

  [[nodiscard]] Result<SequenceId> OpenSequence() override;
  void CloseSequence(SequenceId sequence) override;
  [[nodiscard]] Status Prefill(SequenceId sequence, std::span<const Token> tokens,
                               std::uint32_t first_position) override;
  [[nodiscard]] Result<std::span<const float>> Decode(SequenceId sequence, Token token,
                                                      std::uint32_t position) override;
  [[nodiscard]] Result<std::vector<float>> Score(SequenceId sequence, std::span<const Token> tokens,
                                                 std::uint32_t first_position) override;
  [[nodiscard]] Status Truncate(SequenceId sequence, std::uint32_t tokens) override;
  [[nodiscard]] Status TapQueries(QueryTap tap) override;
  [[nodiscard]] Status VisitOutputWeights(const OutputWeightsVisit& visit) const override {
    return VisitGgufOutputWeights(model_path_, layout_.model_layers, visit);
  }
  [[nodiscard]] Status Capture(SequenceId sequence, TokenRange tokens, std::uint32_t total_tokens,
                               KvBuffer& out) override;
  [[nodiscard]] Status Inject(SequenceId sequence, const ConstKvView& chunk) override;
  [[nodiscard]] Status Drop(SequenceId sequence, TokenRange tokens) override;

 private:
  [[nodiscard]] Status CheckOpen(SequenceId sequence) const;
  [[nodiscard]] Status CheckEvaluation(SequenceId sequence, std::span<const Token> tokens,
                                       std::uint32_t first_position) const;
  [[nodiscard]] Status Evaluate(SequenceId sequence, std::span<const Token> tokens,
                                std::uint32_t first_position, bool logits);
  [[nodiscard]] Status SaveChunk(llama_context* context, TokenRange tokens);
  [[nodiscard]] Status LoadChunk(llama_context* context, const ConstKvView& chunk);
  [[nodiscard]] LlamaSequence& at(SequenceId sequence) {
    return sequences_[static_cast<std::size_t>(sequence)];
  }
  [[nodiscard]] const LlamaSequence& at(SequenceId sequence) const {
    return sequences_[static_cast<std::size_t>(sequence)];
  }

  std::string model_path_;
  std::uint32_t chunk_tokens_;
  LlamaModel model_;
  const llama_vocab* vocab_;
  std::unique_ptr<QueryRecorder> queries_;  // null unless opened for it; contexts point to it
  CacheLayout layout_;
  ModelInfo info_;
  std::vector<LlamaSequence> sequences_;  // by SequenceId; destroyed before the model
  std::uint32_t window_tokens_ = 0;       // of the window layers; 0: none
  std::vector<std::byte> blob_;           // kept for its capacity
};

}  // namespace kvserve
