// A deterministic Engine for tests: tiny, exact, and unforgiving about KV that is wrong.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace kvserve::testing {

struct FakeEngineOptions {
  std::uint64_t model_seed = 1;  // another seed is another model (other fingerprint)
  DType dtype = DType::kFloat16;
  std::uint32_t sequences = 4;
  std::uint32_t context_tokens = 1024;
  std::uint32_t window_tokens = 64;  // of layer 1
  bool end_tokens = false;           // logits may choose the end token
  Token nan_token = -1;              // keys of this token hold a NaN
  Token large_token = -1;            // keys of this token hold 6e4
  // Called on the engine thread before each Prefill; tests block or fail in it.
  std::function<Status(std::span<const Token> tokens, std::uint32_t first_position)> on_prefill;
  std::function<Status(std::uint32_t position)> on_decode;
};

// Tokens are bytes (0..255) plus kEndToken. The KV of a token is a hash of the token, its position,
// the first position of its batch and the KV before it, and logits are a hash of every KV byte that
// attention would see: a chunk that is missing, swapped, altered or cut at another border changes
// the text that follows. Queries, four heads of them, are hashes of token and layer, rotated by
// position; keys are not rotated.
class FakeEngine : public Engine {
 public:
  static constexpr Token kEndToken = 256;
  static constexpr std::uint32_t kVocabulary = 257;

  explicit FakeEngine(FakeEngineOptions options);

  [[nodiscard]] const ModelInfo& info() const override { return info_; }
  [[nodiscard]] Result<std::vector<Token>> Tokenize(std::string_view text, bool add_special,
                                                    bool parse_special) const override;
  [[nodiscard]] std::string TokenText(Token token) const override;
  [[nodiscard]] Result<std::string> ChatPrompt(
      std::span<const ChatMessage> messages) const override;
  [[nodiscard]] bool EndsGeneration(Token token) const override { return token == kEndToken; }

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
  [[nodiscard]] Status Capture(SequenceId sequence, TokenRange tokens, std::uint32_t total_tokens,
                               KvBuffer& out) override;
  [[nodiscard]] Status Inject(SequenceId sequence, const ConstKvView& chunk) override;
  [[nodiscard]] Status Drop(SequenceId sequence, TokenRange tokens) override;

  // Counters; readable from any thread.
  [[nodiscard]] int open_sequences() const { return open_sequences_; }
  [[nodiscard]] int prefilled_tokens() const { return prefilled_tokens_; }
  [[nodiscard]] int decoded_tokens() const { return decoded_tokens_; }
  [[nodiscard]] int injected_tokens() const { return injected_tokens_; }
  [[nodiscard]] int dropped_tokens() const { return dropped_tokens_; }

 private:
  static constexpr std::uint32_t kLayers = 3;
  using Row = std::vector<std::byte>;                          // K then V of one token
  using Sequence = std::vector<std::map<std::uint32_t, Row>>;  // [layer] position -> row

  [[nodiscard]] Status CheckSequence(SequenceId sequence) const;
  [[nodiscard]] Status Append(Sequence& cells, Token token, std::uint32_t position,
                              std::uint32_t batch_begin);
  void ShowQueries(std::span<const Token> tokens, std::uint32_t first_position) const;
  [[nodiscard]] Row MakeRow(std::uint32_t layer, Token token, std::uint64_t state) const;
  void FillLogits(const Sequence& cells, Token token, std::uint32_t position);

  FakeEngineOptions options_;
  ModelInfo info_;
  std::map<SequenceId, Sequence> sequences_;
  QueryTap tap_;
  std::vector<float> logits_;
  std::atomic<int> open_sequences_{0};
  std::atomic<int> prefilled_tokens_{0};
  std::atomic<int> decoded_tokens_{0};
  std::atomic<int> injected_tokens_{0};
  std::atomic<int> dropped_tokens_{0};
};

}  // namespace kvserve::testing
