// Worked solutions of school problems, and code.
#include "base/try.h"
#include "evaluation/tasks/task_prompts.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kMoreThanLineTokens = 16;

// GSM8K marks what a calculator is to work out: "48/2 = <<48/2=24>>24".
std::string WithoutMarks(std::string text) {
  for (std::size_t at = text.find("<<"); at != std::string::npos; at = text.find("<<", at)) {
    const std::size_t end = text.find(">>", at);
    if (end == std::string::npos) break;
    text.erase(at, end + 2 - at);
  }
  return text;
}

}  // namespace

Status FillSolution(const Engine& engine, const Record& record, const PromptOptions& options,
                    EvaluationPrompt& prompt) {
  const Question& question = record.questions.front();
  Probe probe;
  probe.accepted = question.answers;
  std::string answer = question.answers.front();
  if (record.task == Task::kMath) {
    if (!record.solution.empty()) answer = WithoutMarks(record.solution);
    answer = " " + answer;
    const std::string before = record.context.empty() ? "" : record.context + "\n\n";
    KVSERVE_TRY(SplitLastToken(engine, before + AskText(question.text), prompt, probe.lead));
  } else {
    KVSERVE_TRY(SplitLastToken(engine, record.context + question.text, prompt, probe.lead));
  }
  KVSERVE_ASSIGN(probe.answer, AnswerTokens(engine, answer, options));
  if (record.task == Task::kCodeLine) {
    probe.generate_tokens = static_cast<std::uint32_t>(probe.answer.size()) + kMoreThanLineTokens;
  }
  prompt.probes.push_back(std::move(probe));
  return {};
}

}  // namespace kvserve
