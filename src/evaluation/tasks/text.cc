// Plain texts: what follows, and the last word.
#include "base/try.h"
#include "evaluation/tasks/task_prompts.h"

namespace kvserve {

Status FillLm(const Engine& engine, const Record& record, const PromptOptions& options,
              EvaluationPrompt& prompt) {
  prompt.context_tokens = options.context_tokens;
  KVSERVE_ASSIGN(const auto tokens, engine.Tokenize(record.text, true, false));
  if (tokens.size() < std::size_t{options.context_tokens} + options.scored_tokens) return {};
  const auto scored = tokens.begin() + options.context_tokens;
  prompt.context.assign(tokens.begin(), scored);
  Probe& text = prompt.probes.emplace_back();
  text.lead = {*scored};
  text.answer.assign(scored + 1, scored + options.scored_tokens);
  if (options.generate_tokens == 0) return {};
  Probe& generation = prompt.probes.emplace_back();
  generation.lead = {*scored};
  generation.generate_tokens = options.generate_tokens;
  generation.one_line = false;
  generation.along_generation = true;
  return {};
}

Status FillCloze(const Engine& engine, const Record& record, const PromptOptions& options,
                 EvaluationPrompt& prompt) {
  Probe probe;
  KVSERVE_TRY(SplitLastToken(engine, record.context, prompt, probe.lead));
  probe.accepted = record.questions.front().answers;
  KVSERVE_ASSIGN(probe.answer, AnswerTokens(engine, " " + probe.accepted.front(), options));
  prompt.probes.push_back(std::move(probe));
  return {};
}

}  // namespace kvserve
