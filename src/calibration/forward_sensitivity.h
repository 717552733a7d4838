// Sensitivity without gradients: forms from the queries and the output weights, scaled by what
// noise in a plane does to the output.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "calibration/sensitivity.h"
#include "engine/engine.h"
#include "kvserve/error.h"

namespace kvserve {

struct ForwardSensitivityOptions {
  std::uint32_t context_tokens = 768;  // of each text; fewer when no text has as many
  std::uint32_t scored_tokens = 64;    // behind them, in one batch of the engine
  std::uint32_t texts = 2;             // at most
  std::uint32_t prefill_tokens = 256;  // at most what the engine takes
  double target_divergence = 0.01;     // nats per scored token that the noise should cause
  std::uint64_t seed = 0;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // planes
};

// Block-diagonal over heads. Keys: E[q q^T] of the queries, averaged over relative rotations
// (KeyForms), a query head counting by how far its values are spread behind the output weights.
// Values: W^T W (OutputForms). Both times one factor per head, such that noise even in the form,
// injected into the tokens 4 .. context - 32 of the head, has the divergence that was measured.
// What the engine cannot show (queries without tap_queries, weights) is taken as even.
// kBadInput when no prompt has 128 tokens more than `scored_tokens`, or a value is not finite; else
// the engine's errors. Costs texts * planes * heads * about 1.3 scored batches.
[[nodiscard]] Result<Sensitivity> ForwardSensitivity(Engine& engine,
                                                     std::span<const std::vector<Token>> prompts,
                                                     const ForwardSensitivityOptions& options);

}  // namespace kvserve
