#include "evaluation/prompt_builder.h"

#include <algorithm>

#include "base/try.h"
#include "evaluation/answer_text.h"
#include "evaluation/tasks/task_prompts.h"

namespace kvserve {
namespace {

Status Fill(const Engine& engine, const Record& record, const PromptOptions& options,
            EvaluationPrompt& prompt) {
  switch (record.task) {
    case Task::kLm: return FillLm(engine, record, options, prompt);
    case Task::kCloze: return FillCloze(engine, record, options, prompt);
    case Task::kChoice: return FillChoice(engine, record, options, prompt);
    case Task::kChoicePrefix: return FillChoicePrefix(engine, record, options, prompt);
    case Task::kMath:
    case Task::kCodeLine:
    case Task::kCodeBody: return FillSolution(engine, record, options, prompt);
    default: return FillQuestions(engine, record, options, prompt);
  }
}

bool CanBeScored(const EvaluationPrompt& prompt, const PromptOptions& options) {
  if (prompt.context.empty() || prompt.probes.empty()) return false;
  return std::ranges::all_of(prompt.probes, [&](const Probe& probe) {
    const std::size_t behind =
        probe.lead.size() + std::max<std::size_t>(probe.answer.size(), probe.generate_tokens);
    const bool says_something = !probe.answer.empty() || probe.generate_tokens > 0;
    return !probe.lead.empty() && says_something &&
           prompt.context.size() + behind <= options.max_tokens;
  });
}

}  // namespace

Result<std::optional<EvaluationPrompt>> BuildPrompt(const Engine& engine, const Record& record,
                                                    const PromptOptions& options) {
  if (!IsScored(record.task)) return std::nullopt;
  EvaluationPrompt prompt;
  prompt.id = record.id;
  prompt.set = record.set;
  prompt.task = record.task;
  KVSERVE_TRY(Fill(engine, record, options, prompt));
  if (!CanBeScored(prompt, options)) return std::nullopt;
  return prompt;
}

Result<std::vector<Token>> AnswerTokens(const Engine& engine, std::string_view text,
                                        const PromptOptions& options) {
  KVSERVE_ASSIGN(auto tokens, engine.Tokenize(text, false, false));
  tokens.resize(std::min<std::size_t>(tokens.size(), options.scored_tokens));
  return tokens;
}

Status SplitLastToken(const Engine& engine, std::string_view text, EvaluationPrompt& prompt,
                      std::vector<Token>& lead) {
  KVSERVE_ASSIGN(prompt.context, engine.Tokenize(text, true, false));
  if (prompt.context.empty()) return {};
  lead = {prompt.context.back()};
  prompt.context.pop_back();
  return {};
}

std::string AskText(std::string_view question) {
  const std::string_view trimmed = Trim(question);
  const bool asks = !trimmed.empty() && (trimmed.back() == '?' || trimmed.back() == '.');
  if (!asks) return std::string(trimmed);
  return "Question: " + std::string(trimmed) + "\nAnswer:";
}

}  // namespace kvserve
