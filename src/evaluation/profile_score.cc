#include "evaluation/profile_score.h"

#include <algorithm>
#include <iterator>

#include "evaluation/score_groups.h"

namespace kvserve {
namespace {

template <typename Condition>
PromptGroup Where(const PromptGroup& prompts, Condition condition) {
  PromptGroup chosen;
  std::ranges::copy_if(prompts, std::back_inserter(chosen),
                       [&](const PromptScore* prompt) { return condition(*prompt); });
  return chosen;
}

std::map<std::string, DatasetScore> Datasets(const PromptGroup& records) {
  std::map<std::string, DatasetScore> datasets;
  // Records of one set may have different tasks, which are not comparable.
  const auto name = [](const PromptScore& p) { return std::pair(p.set, p.task); };
  for (const auto& [key, members] : GroupBy(records, name)) {
    const bool taken = datasets.contains(key.first);
    const std::string suffix = taken ? "/" + std::string(TaskName(key.second)) : "";
    datasets[key.first + suffix] = DatasetScoreOf(members);
  }
  return datasets;
}

ContextScore ContextScoreOf(std::uint32_t context_tokens, const PromptGroup& prompts) {
  const PromptGroup records = Where(prompts, [](const PromptScore& p) { return !p.made; });
  const PromptGroup made = Where(prompts, [](const PromptScore& p) { return p.made; });
  ContextScore score;
  score.context_tokens = context_tokens;
  score.total = TotalsOf(records.empty() ? made : records);
  score.datasets = Datasets(records);
  if (!made.empty()) score.retrieval = RetrievalScoreOf(made);
  return score;
}

void FillSpeeds(const PromptGroup& prompts, ProfileScore& score) {
  double raw_bytes = 0;
  double encode_s = 0;
  double decode_s = 0;
  for (const PromptScore* prompt : prompts) {
    raw_bytes += static_cast<double>(prompt->raw_bytes);
    encode_s += prompt->encode_s;
    decode_s += prompt->decode_s;
    score.seconds += prompt->seconds;
  }
  if (encode_s > 0) score.encode_bytes_per_s = raw_bytes / encode_s;
  if (decode_s > 0) score.decode_bytes_per_s = raw_bytes / decode_s;
}

}  // namespace

ProfileScore Summarize(const std::string& profile, std::span<const PromptScore> prompts) {
  ProfileScore score;
  score.profile = profile;
  PromptGroup all;
  for (const PromptScore& prompt : prompts) all.push_back(&prompt);
  if (all.empty()) return score;
  const PromptGroup records = Where(all, [](const PromptScore& p) { return !p.made; });
  const PromptGroup made = Where(all, [](const PromptScore& p) { return p.made; });
  const PromptGroup& counted = records.empty() ? made : records;
  static_cast<ScoreTotals&>(score) = TotalsOf(counted);
  score.kl_by_prompt = KlByPrompt(counted);
  FillSpeeds(all, score);
  score.datasets = Datasets(records);
  for (const auto& [workload, members] :
       GroupBy(all, [](const PromptScore& p) { return std::string(WorkloadOf(p.task)); })) {
    score.by_workload[workload] = WorkloadScoreOf(members);
  }
  if (!made.empty()) score.retrieval = RetrievalScoreOf(made);
  const PromptGroup generated =
      Where(all, [](const PromptScore& p) { return p.generation.has_value(); });
  if (!generated.empty()) score.generation = GenerationScoreOf(generated);
  for (const auto& [tokens, members] :
       GroupBy(all, [](const PromptScore& p) { return p.context_tokens; })) {
    if (tokens > 0) score.contexts.push_back(ContextScoreOf(tokens, members));
  }
  return score;
}

}  // namespace kvserve
