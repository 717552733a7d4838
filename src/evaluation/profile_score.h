// Scores of single prompts, and their summary.
#pragma once

#include <span>
#include <string>

#include "evaluation/distribution.h"
#include "evaluation/evaluator.h"

namespace kvserve {

struct PromptScore {
  std::string set;
  DistributionScore score;
  std::uint64_t raw_bytes = 0;
  std::uint64_t wire_bytes = 0;
  double encode_s = 0.0;
  double decode_s = 0.0;
};

// Every prompt counts the same. Intervals are bootstrapped over prompts with a fixed seed.
[[nodiscard]] ProfileScore Summarize(const std::string& profile,
                                     std::span<const PromptScore> prompts);

}  // namespace kvserve
