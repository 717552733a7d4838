#include "evaluation/grade.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvserve {
namespace {

ProbeOutcome Outcome(double nll, std::size_t tokens, std::string output = {}) {
  ProbeOutcome outcome;
  outcome.nll = nll;
  outcome.answer_tokens = tokens;
  outcome.output = std::move(output);
  return outcome;
}

EvaluationPrompt Prompt(Task task, std::vector<std::vector<std::string>> accepted) {
  EvaluationPrompt prompt;
  prompt.task = task;
  for (auto& answers : accepted) prompt.probes.emplace_back().accepted = std::move(answers);
  return prompt;
}

double Value(const std::vector<Grade>& grades, const std::string& metric) {
  for (const Grade& grade : grades) {
    if (grade.metric == metric) return grade.value;
  }
  ADD_FAILURE() << "no " << metric;
  return -1;
}

TEST(Grade, TextsAreJudgedByLikelihoodOfTheTextAlone) {
  const std::vector<ProbeOutcome> outcomes = {Outcome(6, 3), Outcome(0, 0, "generated")};
  const auto grades = GradePrompt(Prompt(Task::kLm, {{}, {}}), outcomes);
  ASSERT_EQ(grades.size(), 1U);
  EXPECT_EQ(grades[0].metric, "nll");
  EXPECT_DOUBLE_EQ(grades[0].value, 2.0);
}

TEST(Grade, QuestionsOfOneContextCountAsTheirMean) {
  const std::vector<ProbeOutcome> outcomes = {Outcome(2, 1, "the steam"), Outcome(4, 2, "no")};
  const auto grades = GradePrompt(Prompt(Task::kMultiQa, {{"steam", "vapour"}, {"yes"}}), outcomes);
  EXPECT_EQ(grades.front().metric, "f1");
  EXPECT_DOUBLE_EQ(grades.front().value, 0.5);
  EXPECT_DOUBLE_EQ(Value(grades, "exact_match"), 0.5);
  EXPECT_DOUBLE_EQ(Value(grades, "nll"), 2.0);
}

TEST(Grade, ChoicesAreByLikelihoodPerToken) {
  auto prompt = Prompt(Task::kChoice, {{}, {}});
  const std::vector<ProbeOutcome> outcomes = {Outcome(4, 4), Outcome(3, 1)};  // 1 and 3 per token
  EXPECT_DOUBLE_EQ(GradePrompt(prompt, outcomes).front().value, 1.0);
  EXPECT_DOUBLE_EQ(Value(GradePrompt(prompt, outcomes), "nll"), 1.0);
  prompt.gold = 1;
  EXPECT_DOUBLE_EQ(GradePrompt(prompt, outcomes).front().value, 0.0);
  EXPECT_DOUBLE_EQ(Value(GradePrompt(prompt, outcomes), "nll"), 3.0);
}

TEST(Grade, RetrievalLooksForTheAnswers) {
  const std::vector<ProbeOutcome> outcomes = {Outcome(1, 1, " NXTTR and EFGH.")};
  const std::vector<std::string> answers = {"NXTTR", "ABCD"};
  EXPECT_DOUBLE_EQ(GradePrompt(Prompt(Task::kRetrieval, {answers}), outcomes).front().value, 1.0);
  EXPECT_DOUBLE_EQ(GradePrompt(Prompt(Task::kRetrievalAll, {answers}), outcomes).front().value,
                   0.5);
}

TEST(Grade, TheLastWordMustBeTheMostLikelyOne) {
  std::vector<ProbeOutcome> outcomes = {Outcome(1, 2)};
  EXPECT_DOUBLE_EQ(GradePrompt(Prompt(Task::kCloze, {{"robot"}}), outcomes).front().value, 0.0);
  outcomes[0].top_answer = true;
  EXPECT_DOUBLE_EQ(GradePrompt(Prompt(Task::kCloze, {{"robot"}}), outcomes).front().value, 1.0);
}

TEST(Grade, LinesOfCodeByEditSimilarity) {
  const std::vector<ProbeOutcome> outcomes = {Outcome(1, 2, "    return y\n")};
  const auto grades = GradePrompt(Prompt(Task::kCodeLine, {{"  return x"}}), outcomes);
  EXPECT_EQ(grades.front().metric, "edit_similarity");
  EXPECT_DOUBLE_EQ(grades.front().value, 1 - 1.0 / 8);
  EXPECT_DOUBLE_EQ(Value(grades, "exact_match"), 0.0);
}

}  // namespace
}  // namespace kvserve
