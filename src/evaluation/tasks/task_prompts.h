// One function per kind of task, for prompt_builder.cc alone. Each fills context and probes of a
// prompt whose id, set and task are there, and leaves the context empty when the record is too
// short.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evaluation/prompt_builder.h"

namespace kvserve {

// text.cc
[[nodiscard]] Status FillLm(const Engine& engine, const Record& record,
                            const PromptOptions& options, EvaluationPrompt& prompt);
[[nodiscard]] Status FillCloze(const Engine& engine, const Record& record,
                               const PromptOptions& options, EvaluationPrompt& prompt);
// questions.cc: kQa, kMultiQa, kConversation, kSummary, kRetrieval, kRetrievalAll
[[nodiscard]] Status FillQuestions(const Engine& engine, const Record& record,
                                   const PromptOptions& options, EvaluationPrompt& prompt);
// choices.cc
[[nodiscard]] Status FillChoice(const Engine& engine, const Record& record,
                                const PromptOptions& options, EvaluationPrompt& prompt);
[[nodiscard]] Status FillChoicePrefix(const Engine& engine, const Record& record,
                                      const PromptOptions& options, EvaluationPrompt& prompt);
// solutions.cc: kMath, kCodeBody, kCodeLine
[[nodiscard]] Status FillSolution(const Engine& engine, const Record& record,
                                  const PromptOptions& options, EvaluationPrompt& prompt);

// Shared by them (prompt_builder.cc).
[[nodiscard]] Result<std::vector<Token>> AnswerTokens(const Engine& engine, std::string_view text,
                                                      const PromptOptions& options);
// The context is all tokens of `text` but the last, which is the lead.
[[nodiscard]] Status SplitLastToken(const Engine& engine, std::string_view text,
                                    EvaluationPrompt& prompt, std::vector<Token>& lead);
// "Question: ...\nAnswer:"; a question that is the beginning of its answer stays as it is.
[[nodiscard]] std::string AskText(std::string_view question);

}  // namespace kvserve
