// Picks the next token from logits: greedy, or temperature and top-p with a seed.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/split_mix.h"
#include "engine/engine.h"

namespace kvserve {

struct SamplingOptions {
  float temperature = 1.0F;  // 0: greedy; 0..2
  float top_p = 1.0F;        // 0..1
  std::uint64_t seed = 0;
};

// One per sequence. The tokens it picks depend on the options and the logits alone.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}
  // Greedy ties go to the lowest id. NaN is never picked.
  [[nodiscard]] Token Pick(std::span<const float> logits);

 private:
  [[nodiscard]] double NextUniform();

  SamplingOptions options_;
  SplitMix64 random_;
  std::vector<std::pair<float, Token>> candidates_;
};

}  // namespace kvserve
