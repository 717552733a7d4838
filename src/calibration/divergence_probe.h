// How far a model's next-token distribution moves when the KV of a text's context is changed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "kvserve/error.h"
#include "kvserve/view.h"

namespace kvserve {

// Holds the context's KV and the distributions behind it, of which the tokens below e^-20 are one:
// as if none of them had moved. Both sides come the same way (injected, then scored in one batch),
// so unchanged KV diverges by exactly 0. One thread at a time.
class DivergenceProbe {
 public:
  // Prefills the context in pieces of `prefill_tokens`. `engine` outlives the probe, has a free
  // sequence whenever the probe is used and takes `scored` in one batch.
  [[nodiscard]] static Result<DivergenceProbe> Create(Engine& engine,
                                                      std::span<const Token> context,
                                                      std::span<const Token> scored,
                                                      std::uint32_t prefill_tokens);

  // The context's KV, to be changed before Divergence and back after it.
  [[nodiscard]] KvView kv() { return kv_.view(); }
  // Mean over the scored tokens of KL(unchanged || as kv() is now), nats.
  [[nodiscard]] Result<double> Divergence();

 private:
  DivergenceProbe(Engine& engine, std::span<const Token> scored)
      : engine_(engine), scored_(scored.begin(), scored.end()) {}
  [[nodiscard]] Status Fill(std::span<const Token> context, std::uint32_t prefill_tokens);
  // Logits [scored token, vocabulary] behind the KV as it is now.
  [[nodiscard]] Result<std::vector<float>> Score();
  [[nodiscard]] Status KeepReference();

  Engine& engine_;
  std::vector<Token> scored_;
  KvBuffer kv_;
  struct Likelihood {
    std::size_t at = 0;  // in the logits of all scored tokens
    float logit = 0;
    float probability = 0;
  };
  std::vector<std::vector<Likelihood>> reference_;  // [scored token]
};

}  // namespace kvserve
