// Questions on a context: short answers, conversations, summaries, retrieval.
#include <algorithm>

#include "base/try.h"
#include "evaluation/tasks/task_prompts.h"

namespace kvserve {
namespace {

constexpr std::size_t kMaxQuestions = 4;
constexpr std::uint32_t kShortAnswerTokens = 32;
constexpr std::uint32_t kMoreThanAnswerTokens = 16;  // for words around a retrieved answer

std::string QuestionText(Task task, const std::string& question) {
  // Retrieval records end where the answer begins; summaries come with their instruction.
  if (task == Task::kRetrieval || task == Task::kRetrievalAll) return question;
  if (task == Task::kSummary) return question + "\n";
  return "Question: " + question + "\nAnswer:";
}

std::string AnswerText(Task task, const std::vector<std::string>& answers) {
  if (task != Task::kRetrievalAll) return " " + answers.front();
  std::string all;
  for (const std::string& answer : answers) all += (all.empty() ? " " : ", ") + answer;
  return all;
}

std::uint32_t GeneratedTokens(Task task, const Probe& probe) {
  switch (task) {
    case Task::kSummary: return 0;  // scored by likelihood alone
    case Task::kRetrieval:
    case Task::kRetrievalAll:
      return static_cast<std::uint32_t>(probe.answer.size()) + kMoreThanAnswerTokens;
    default: return kShortAnswerTokens;
  }
}

}  // namespace

Status FillQuestions(const Engine& engine, const Record& record, const PromptOptions& options,
                     EvaluationPrompt& prompt) {
  if (!record.context.empty()) {
    KVSERVE_ASSIGN(prompt.context, engine.Tokenize(record.context, true, false));
  }
  const std::string before = "\n\n";
  std::string earlier;  // turns of a conversation, with their reference answers
  const std::size_t count = std::min(record.questions.size(), kMaxQuestions);
  for (const Question& question : std::span(record.questions).first(count)) {
    Probe probe;
    const std::string text = QuestionText(record.task, question.text);
    const std::string asked = earlier + before;
    if (prompt.context.empty()) {
      KVSERVE_TRY(SplitLastToken(engine, text, prompt, probe.lead));
    } else {
      KVSERVE_ASSIGN(probe.lead, engine.Tokenize(asked + text, false, false));
    }
    const std::string answer = AnswerText(record.task, question.answers);
    KVSERVE_ASSIGN(probe.answer, AnswerTokens(engine, answer, options));
    probe.accepted = question.answers;
    probe.generate_tokens = GeneratedTokens(record.task, probe);
    prompt.probes.push_back(std::move(probe));
    if (record.context.empty()) break;  // another question would be another prompt
    if (record.task == Task::kConversation) earlier.append(before).append(text).append(answer);
  }
  return {};
}

}  // namespace kvserve
