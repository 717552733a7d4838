// Choices by likelihood.
#include <algorithm>

#include "base/try.h"
#include "evaluation/tasks/task_prompts.h"

namespace kvserve {

Status FillChoice(const Engine& engine, const Record& record, const PromptOptions& options,
                  EvaluationPrompt& prompt) {
  prompt.gold = record.gold;
  const std::string text = AskText(record.questions.front().text);
  std::vector<Token> lead;
  if (record.context.empty()) {
    KVSERVE_TRY(SplitLastToken(engine, text, prompt, lead));
  } else {
    KVSERVE_ASSIGN(prompt.context, engine.Tokenize(record.context, true, false));
    KVSERVE_ASSIGN(lead, engine.Tokenize("\n\n" + text, false, false));
  }
  for (const std::string& choice : record.choices) {
    Probe& probe = prompt.probes.emplace_back();
    probe.lead = lead;
    KVSERVE_ASSIGN(probe.answer, AnswerTokens(engine, " " + choice, options));
  }
  return {};
}

// The context is what the beginnings have in common; the rest of each is its lead.
Status FillChoicePrefix(const Engine& engine, const Record& record, const PromptOptions& options,
                        EvaluationPrompt& prompt) {
  prompt.gold = record.gold;
  std::vector<std::vector<Token>> beginnings;
  std::size_t common = SIZE_MAX;
  for (const std::string& prefix : record.prefixes) {
    KVSERVE_ASSIGN(beginnings.emplace_back(), engine.Tokenize(prefix, true, false));
    const auto& first = beginnings.front();
    const auto& last = beginnings.back();
    const auto differ = std::mismatch(first.begin(), first.end(), last.begin(), last.end()).first;
    const auto same = static_cast<std::size_t>(differ - first.begin());
    common = std::min({common, same, last.empty() ? 0 : last.size() - 1});
  }
  prompt.context.assign(beginnings.front().begin(), beginnings.front().begin() + common);
  for (const std::vector<Token>& beginning : beginnings) {
    Probe& probe = prompt.probes.emplace_back();
    probe.lead.assign(beginning.begin() + common, beginning.end());
    KVSERVE_ASSIGN(probe.answer, AnswerTokens(engine, " " + record.continuation, options));
  }
  return {};
}

}  // namespace kvserve
