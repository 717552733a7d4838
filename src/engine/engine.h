// What KVServe needs of a model runtime: tokens in, KV chunks out and in, logits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "kvserve/view.h"

namespace kvserve {

using Token = std::int32_t;
using SequenceId = std::int32_t;

struct ModelInfo {
  std::string name;          // for /v1/models
  std::string architecture;  // "llama", "gemma3", ...
  Fingerprint fingerprint;   // of the weights and of the cache dtype
  KvGeometry geometry;
  std::uint32_t context_tokens = 0;  // per sequence
  std::uint32_t vocabulary = 0;
};

struct ChatMessage {
  std::string role;
  std::string content;
};

// Queries of one layer (index into ModelInfo::geometry) and one Prefill call, as attention uses
// them but for its scale: `values` [token, head, dim] of the tokens from `first_position` on,
// before RoPE or after it (`rotated`). Valid during the call.
using QueryTap = std::function<void(std::uint32_t layer, std::uint32_t first_position,
                                    std::span<const float> values, std::uint32_t heads,
                                    std::uint32_t dim, bool rotated)>;

// The weights that take attention's output of one layer into the residual stream, [output, head *
// dim] of query heads and the dim of V, times the gains of a norm behind them if there is one.
// Valid during the call, whose error ends the visit.
using OutputWeightsVisit =
    std::function<Status(std::uint32_t layer, std::span<const float> weights, std::size_t inputs)>;

// One model with several sequences. Not thread-safe: one thread at a time. Every error
// leaves other sequences untouched.
class Engine {
 public:
  virtual ~Engine() = default;
  [[nodiscard]] virtual const ModelInfo& info() const = 0;

  // ---- text; these four are safe beside the engine thread ----
  [[nodiscard]] virtual Result<std::vector<Token>> Tokenize(std::string_view text, bool add_special,
                                                            bool parse_special) const = 0;
  [[nodiscard]] virtual std::string TokenText(
      Token token) const = 0;  // may be part of a UTF-8 char
  [[nodiscard]] virtual Result<std::string> ChatPrompt(
      std::span<const ChatMessage> messages) const = 0;
  [[nodiscard]] virtual bool EndsGeneration(Token token) const = 0;

  // ---- sequences ----
  [[nodiscard]] virtual Result<SequenceId>
  OpenSequence() = 0;                                   // kResourceExhausted when all are used
  virtual void CloseSequence(SequenceId sequence) = 0;  // frees its cells

  // Evaluates one chunk of the prompt at positions first .. first + tokens.size(). Chunk borders
  // change the arithmetic: two runs agree bit for bit only with equal borders.
  [[nodiscard]] virtual Status Prefill(SequenceId sequence, std::span<const Token> tokens,
                                       std::uint32_t first_position) = 0;
  // Evaluates one token; logits [vocabulary], valid until the next call on the engine.
  [[nodiscard]] virtual Result<std::span<const float>> Decode(SequenceId sequence, Token token,
                                                              std::uint32_t position) = 0;
  // Evaluates several tokens in one batch and returns logits [token, vocabulary] (evaluation only).
  [[nodiscard]] virtual Result<std::vector<float>> Score(SequenceId sequence,
                                                         std::span<const Token> tokens,
                                                         std::uint32_t first_position) = 0;
  // Forgets the tokens at positions from `tokens` on, so that the sequence goes on from there as if
  // they had never been (evaluation only). kInvalidArgument when it holds fewer.
  [[nodiscard]] virtual Status Truncate(SequenceId sequence, std::uint32_t tokens) = 0;

  // Calls `tap` during each Prefill, on its thread, for every layer, before RoPE and then after it
  // (of a layer without RoPE the same values twice); null ends it. Layers whose queries the engine
  // cannot see are left out. kUnsupported from engines that were not opened for it.
  [[nodiscard]] virtual Status TapQueries(QueryTap tap);

  // Visits the layers in ascending order, without those that have no such weights. kUnsupported
  // from engines that do not show them.
  [[nodiscard]] virtual Status VisitOutputWeights(const OutputWeightsVisit& visit) const;

  // ---- KV ----
  // Copies the KV of `tokens` to `out` (resized): all layers; a window layer gives only those of
  // its last window_tokens before `total_tokens`, the length the request will have. kBadInput when
  // the cache no longer holds a token that is asked for.
  [[nodiscard]] virtual Status Capture(SequenceId sequence, TokenRange tokens,
                                       std::uint32_t total_tokens, KvBuffer& out) = 0;
  // Adds the chunk's tokens to the sequence. kMismatch when geometry or dtype differ.
  [[nodiscard]] virtual Status Inject(SequenceId sequence, const ConstKvView& chunk) = 0;
  // Takes tokens out of the sequence in all layers: later tokens do not attend to them. Positions
  // of the others stay, and the sequence goes on where it would have. Tokens that are not there any
  // more are no error. kInvalidArgument for tokens beyond the sequence; kUnsupported for its last
  // one, which evaluation has to follow.
  [[nodiscard]] virtual Status Drop(SequenceId sequence, TokenRange tokens) = 0;
};

// NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep the tap
inline Status Engine::TapQueries(QueryTap /*tap*/) {
  return MakeError(ErrorCode::kUnsupported, "this engine does not show its queries");
}

inline Status Engine::VisitOutputWeights(const OutputWeightsVisit& /*visit*/) const {
  return MakeError(ErrorCode::kUnsupported, "this engine does not show its weights");
}

}  // namespace kvserve
