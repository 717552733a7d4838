// Scores of single prompts, and their summary.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evaluation/distribution.h"
#include "evaluation/evaluator.h"
#include "evaluation/grade.h"
#include "evaluation/task.h"

namespace kvserve {

struct PromptGeneration {
  DistributionSum along;
  std::size_t tokens = 0;  // that the reference generated
  std::size_t equal_tokens = 0;
  std::size_t first_difference = 0;
};

struct PromptScore {
  std::string set;
  Task task = Task::kLm;
  std::uint32_t context_tokens = 0;  // 0: the record's own
  bool made = false;
  std::size_t choices = 0;      // of a choice
  DistributionSum answers;      // of all probes with answers
  std::vector<Grade> baseline;  // the same measures in the same order:
  std::vector<Grade> grades;    // of the reference, with the profile
  std::optional<PromptGeneration> generation;
  std::uint64_t raw_bytes = 0;
  std::uint64_t wire_bytes = 0;
  std::size_t frames = 0;
  std::size_t drift_fallbacks = 0;  // of them that the fallback profile encoded
  std::string drift_reason;         // of the first of those
  double encode_s = 0.0;
  double decode_s = 0.0;
  double seconds = 0.0;
};

[[nodiscard]] ProfileScore Summarize(const std::string& profile,
                                     std::span<const PromptScore> prompts);

}  // namespace kvserve
