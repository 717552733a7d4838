#include "evaluation/prompt_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/testing/fake_engine.h"

namespace kvserve {
namespace {

using ::testing::ElementsAre;

class PromptBuilder : public ::testing::Test {
 protected:
  std::optional<EvaluationPrompt> Build(const Record& record) {
    auto prompt = BuildPrompt(engine_, record, options_);
    EXPECT_TRUE(prompt) << (prompt ? "" : prompt.error().message);
    return prompt ? *prompt : std::nullopt;
  }
  // Tokens of the fake engine are bytes.
  static std::string Text(const std::vector<Token>& tokens) {
    return {tokens.begin(), tokens.end()};
  }
  static Record Asking(Task task, std::string context, std::vector<Question> questions) {
    Record record;
    record.id = "s/1";
    record.set = "s";
    record.task = task;
    record.context = std::move(context);
    record.questions = std::move(questions);
    return record;
  }

  testing::FakeEngine engine_{{}};
  PromptOptions options_{.context_tokens = 20, .scored_tokens = 5, .max_tokens = 1000};
};

TEST_F(PromptBuilder, TextsAreCutIntoContextAndScoredTokens) {
  Record record;
  record.task = Task::kLm;
  record.text = "0123456789012345678901234567";
  const auto prompt = Build(record);
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->context_tokens, 20U);
  EXPECT_EQ(Text(prompt->context), record.text.substr(0, 20));
  ASSERT_EQ(prompt->probes.size(), 1U);
  EXPECT_EQ(Text(prompt->probes[0].lead), "0");
  EXPECT_EQ(Text(prompt->probes[0].answer), "1234");
  record.text = record.text.substr(0, 24);
  EXPECT_FALSE(Build(record));  // too short
}

TEST_F(PromptBuilder, GenerationIsAnotherProbeOfTheSameContext) {
  options_.generate_tokens = 7;
  Record record;
  record.task = Task::kLm;
  record.text = std::string(30, 'x');
  const auto prompt = Build(record);
  ASSERT_TRUE(prompt);
  ASSERT_EQ(prompt->probes.size(), 2U);
  EXPECT_TRUE(prompt->probes[1].along_generation);
  EXPECT_EQ(prompt->probes[1].generate_tokens, 7U);
  EXPECT_EQ(prompt->probes[1].lead, prompt->probes[0].lead);
}

TEST_F(PromptBuilder, QuestionsComeBehindTheirContext) {
  options_.scored_tokens = 100;
  const auto prompt =
      Build(Asking(Task::kMultiQa, "Steam.", {{"Why?", {"hot", "x"}}, {"So?", {"y"}}}));
  ASSERT_TRUE(prompt);
  EXPECT_EQ(Text(prompt->context), "Steam.");
  EXPECT_EQ(prompt->context_tokens, 0U);
  ASSERT_EQ(prompt->probes.size(), 2U);
  EXPECT_EQ(Text(prompt->probes[0].lead), "\n\nQuestion: Why?\nAnswer:");
  EXPECT_EQ(Text(prompt->probes[0].answer), " hot");
  EXPECT_THAT(prompt->probes[0].accepted, ElementsAre("hot", "x"));
  EXPECT_EQ(Text(prompt->probes[1].lead), "\n\nQuestion: So?\nAnswer:");
}

TEST_F(PromptBuilder, ConversationsKeepEarlierTurns) {
  const auto prompt =
      Build(Asking(Task::kConversation, "Steam.", {{"Why?", {"hot"}}, {"So?", {"y"}}}));
  ASSERT_TRUE(prompt);
  EXPECT_EQ(Text(prompt->probes[1].lead),
            "\n\nQuestion: Why?\nAnswer: hot\n\nQuestion: So?\nAnswer:");
}

TEST_F(PromptBuilder, AtMostFourQuestions) {
  const auto prompt =
      Build(Asking(Task::kMultiQa, "Steam.", std::vector<Question>(9, {"Why?", {"hot"}})));
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->probes.size(), 4U);
}

TEST_F(PromptBuilder, APromptWithoutContextEndsBeforeItsLastToken) {
  const auto prompt = Build(Asking(Task::kQa, "", {{"Why", {"hot"}}}));
  ASSERT_TRUE(prompt);
  EXPECT_EQ(Text(prompt->context), "Question: Why\nAnswer");
  EXPECT_EQ(Text(prompt->probes[0].lead), ":");
}

TEST_F(PromptBuilder, SolutionsLoseTheMarksOfCalculators) {
  options_.scored_tokens = 100;
  Record record = Asking(Task::kMath, "", {{"How many?", {"24"}}});
  record.solution = "48/2 = <<48/2=24>>24";
  auto prompt = Build(record);
  ASSERT_TRUE(prompt);
  EXPECT_EQ(Text(prompt->probes[0].answer), " 48/2 = 24");
  EXPECT_EQ(prompt->probes[0].generate_tokens, 0U);
  record.solution.clear();
  record.questions[0].text = "1 + 1 =";  // the beginning of its answer
  prompt = Build(record);
  ASSERT_TRUE(prompt);
  EXPECT_EQ(Text(prompt->context) + Text(prompt->probes[0].lead), "1 + 1 =");
  EXPECT_EQ(Text(prompt->probes[0].answer), " 24");
}

TEST_F(PromptBuilder, ChoicesShareTheirLead) {
  Record record = Asking(Task::kChoice, "Steam.", {{"Hot?", {"yes"}}});
  record.choices = {"no", "yes"};
  record.gold = 1;
  const auto prompt = Build(record);
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->gold, 1U);
  ASSERT_EQ(prompt->probes.size(), 2U);
  EXPECT_EQ(prompt->probes[0].lead, prompt->probes[1].lead);
  EXPECT_EQ(Text(prompt->probes[1].answer), " yes");
}

TEST_F(PromptBuilder, BeginningsShareTheirContext) {
  options_.scored_tokens = 100;
  Record record;
  record.task = Task::kChoicePrefix;
  record.prefixes = {"Sarah saw Maria so Sarah", "Sarah saw Maria so Maria"};
  record.continuation = "left.";
  record.gold = 1;
  auto prompt = Build(record);
  ASSERT_TRUE(prompt);
  EXPECT_EQ(Text(prompt->context), "Sarah saw Maria so ");
  EXPECT_EQ(Text(prompt->probes[1].lead), "Maria");
  EXPECT_EQ(Text(prompt->probes[0].answer), " left.");
  record.prefixes = {"same", "same as"};  // one is the beginning of the other
  prompt = Build(record);
  ASSERT_TRUE(prompt);
  EXPECT_EQ(Text(prompt->context), "sam");
  record.prefixes = {"a", "b"};
  EXPECT_FALSE(Build(record));  // nothing in common
}

TEST_F(PromptBuilder, CodeGoesOnWhereItEnds) {
  options_.scored_tokens = 100;
  auto prompt = Build(Asking(Task::kCodeLine, "if x:\n", {{"", {"  y()"}}}));
  ASSERT_TRUE(prompt);
  EXPECT_EQ(Text(prompt->context), "if x:");
  EXPECT_EQ(Text(prompt->probes[0].answer), "  y()");
  EXPECT_GT(prompt->probes[0].generate_tokens, 5U);
  prompt = Build(Asking(Task::kCodeBody, "def f():\n", {{"", {"  pass\n"}}}));
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->probes[0].generate_tokens, 0U);
}

TEST_F(PromptBuilder, ClozeAndRetrievalAnswersFollowABlank) {
  EXPECT_EQ(Text(Build(Asking(Task::kCloze, "He is a", {{"", {"robot"}}}))->probes[0].answer),
            " robo");  // cut to scored_tokens
  const auto prompt = Build(Asking(Task::kRetrievalAll, "A=1 B=1", {{"They are:", {"A", "B"}}}));
  EXPECT_EQ(Text(prompt->probes[0].lead), "\n\nThey are:");
  EXPECT_EQ(Text(prompt->probes[0].answer), " A, B");
}

TEST_F(PromptBuilder, WhatDoesNotFitIsLeftOut) {
  options_.max_tokens = 40;
  EXPECT_FALSE(Build(Asking(Task::kQa, std::string(30, 'x'), {{"Why?", {"hot"}}})));
  Record record;
  record.task = Task::kPassage;
  record.text = "pool";
  EXPECT_FALSE(Build(record));
}

}  // namespace
}  // namespace kvserve
