// Figures of one group of prompts; profile_score.cc puts them together.
#pragma once

#include <span>

#include "evaluation/profile_score.h"

namespace kvserve {

using PromptGroup = std::vector<const PromptScore*>;

// Of a group that is not empty.
[[nodiscard]] std::vector<double> KlByPrompt(const PromptGroup& prompts);  // nats per token
[[nodiscard]] ScoreTotals TotalsOf(const PromptGroup& prompts);
[[nodiscard]] WorkloadScore WorkloadScoreOf(const PromptGroup& prompts);
// All of one task.
[[nodiscard]] DatasetScore DatasetScoreOf(const PromptGroup& prompts);
[[nodiscard]] RetrievalScore RetrievalScoreOf(const PromptGroup& prompts);
// Of the prompts with a generation.
[[nodiscard]] GenerationScore GenerationScoreOf(const PromptGroup& prompts);

// Splits by `key(prompt)`.
template <typename Key>
[[nodiscard]] auto GroupBy(const PromptGroup& prompts, Key key) {
  std::map<std::decay_t<decltype(key(*prompts.front()))>, PromptGroup> groups;
  for (const PromptScore* prompt : prompts) groups[key(*prompt)].push_back(prompt);
  return groups;
}

}  // namespace kvserve
