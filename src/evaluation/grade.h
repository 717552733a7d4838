// How right a model's answers to one prompt are, by the task's own measures.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evaluation/evaluation_prompt.h"

namespace kvserve {

inline constexpr std::string_view kNll = "nll";

struct Grade {
  std::string metric;
  double value = 0.0;
};

// The task's measures, the one that counts first. "nll" is nats per token of the reference answer,
// lower is better; all others are in [0, 1], higher is better: "accuracy", "f1", "exact_match",
// "edit_similarity". Several questions of one context count together as their mean.
[[nodiscard]] std::vector<Grade> GradePrompt(const EvaluationPrompt& prompt,
                                             std::span<const ProbeOutcome> outcomes);

}  // namespace kvserve
