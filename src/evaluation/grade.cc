#include "evaluation/grade.h"

#include <algorithm>

#include "evaluation/answer_text.h"

namespace kvserve {
namespace {

// Mean over the probes of `measure(probe, outcome)`.
template <typename Measure>
Grade MeanOf(const char* metric, const EvaluationPrompt& prompt,
             std::span<const ProbeOutcome> outcomes, Measure measure) {
  Grade grade{metric, 0.0};
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    grade.value += measure(prompt.probes[i], outcomes[i]);
  }
  grade.value /= static_cast<double>(std::max<std::size_t>(outcomes.size(), 1));
  return grade;
}

double NllOf(const ProbeOutcome& outcome) {
  return outcome.nll / static_cast<double>(std::max<std::size_t>(outcome.answer_tokens, 1));
}

// Per token of all reference answers together.
Grade NllGrade(std::span<const ProbeOutcome> outcomes) {
  ProbeOutcome all;
  for (const ProbeOutcome& outcome : outcomes) {
    all.nll += outcome.nll;
    all.answer_tokens += outcome.answer_tokens;
  }
  return {std::string(kNll), NllOf(all)};
}

// The likeliest per token; of equally likely ones the first.
std::size_t Choose(std::span<const ProbeOutcome> outcomes) {
  const auto best = std::ranges::min_element(outcomes, {}, NllOf);
  return static_cast<std::size_t>(best - outcomes.begin());
}

double ShareFound(const Probe& probe, const ProbeOutcome& outcome) {
  const auto found = std::ranges::count_if(probe.accepted, [&](const std::string& answer) {
    return ContainsAnswer(outcome.output, answer);
  });
  return static_cast<double>(found) /
         static_cast<double>(std::max<std::size_t>(probe.accepted.size(), 1));
}

double AnyFound(const Probe& probe, const ProbeOutcome& outcome) {
  return ShareFound(probe, outcome) > 0 ? 1.0 : 0.0;
}

double BestEditSimilarity(const Probe& probe, const ProbeOutcome& outcome) {
  double best = 0;
  for (const std::string& answer : probe.accepted) {
    best = std::max(best, EditSimilarity(Trim(outcome.output), Trim(answer)));
  }
  return best;
}

double SameLine(const Probe& probe, const ProbeOutcome& outcome) {
  return BestEditSimilarity(probe, outcome) == 1.0 ? 1.0 : 0.0;
}

double F1(const Probe& probe, const ProbeOutcome& outcome) {
  return BestTokenF1(outcome.output, probe.accepted);
}

double ExactMatch(const Probe& probe, const ProbeOutcome& outcome) {
  return AnyExactMatch(outcome.output, probe.accepted) ? 1.0 : 0.0;
}

double TopAnswer(const Probe& /*probe*/, const ProbeOutcome& outcome) {
  return outcome.top_answer ? 1.0 : 0.0;
}

}  // namespace

std::vector<Grade> GradePrompt(const EvaluationPrompt& prompt,
                               std::span<const ProbeOutcome> outcomes) {
  const Grade nll = NllGrade(outcomes);
  switch (prompt.task) {
    case Task::kCloze: return {MeanOf("accuracy", prompt, outcomes, TopAnswer), nll};
    case Task::kChoice:
    case Task::kChoicePrefix: {
      const double right = Choose(outcomes) == prompt.gold ? 1.0 : 0.0;
      return {{"accuracy", right}, {std::string(kNll), NllOf(outcomes[prompt.gold])}};
    }
    case Task::kQa:
    case Task::kMultiQa:
    case Task::kConversation:
      return {MeanOf("f1", prompt, outcomes, F1),
              MeanOf("exact_match", prompt, outcomes, ExactMatch), nll};
    case Task::kCodeLine:
      return {MeanOf("edit_similarity", prompt, outcomes, BestEditSimilarity),
              MeanOf("exact_match", prompt, outcomes, SameLine), nll};
    case Task::kRetrieval: return {MeanOf("accuracy", prompt, outcomes, AnyFound), nll};
    case Task::kRetrievalAll: return {MeanOf("accuracy", prompt, outcomes, ShareFound), nll};
    default:
      // Only the answer that the records give: a text goes on, a solution, a summary.
      return {NllGrade(outcomes.first(std::min<std::size_t>(outcomes.size(), 1)))};
  }
}

}  // namespace kvserve
