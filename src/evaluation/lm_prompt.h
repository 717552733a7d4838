// One text of plain language modelling: its context's KV, and scoring what follows it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "kvserve/view.h"

namespace kvserve {

struct LmOptions {
  std::uint32_t context_tokens = 1536;  // their KV goes through the profile
  std::uint32_t scored_tokens = 256;    // evaluated on top, with the text's own tokens
  std::uint32_t frame_tokens = 256;     // per frame; kMaxTokens: all in one
  std::uint32_t chunk_tokens = 256;     // per Prefill, at most what the engine takes
};

// Prefills `context` in a sequence of its own and copies its KV out in frames.
[[nodiscard]] Result<std::vector<KvBuffer>> CaptureFrames(Engine& engine,
                                                          std::span<const Token> context,
                                                          const LmOptions& options);

// Logits [token, vocabulary] after each of `tokens`, evaluated behind the injected frames.
[[nodiscard]] Result<std::vector<float>> ScoreBehind(Engine& engine,
                                                     std::span<const KvBuffer> frames,
                                                     std::span<const Token> tokens);

}  // namespace kvserve
