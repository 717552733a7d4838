#include "evaluation/retrieval_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/testing/fake_engine.h"
#include "evaluation/answer_text.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;

std::string Text(const std::vector<Token>& tokens) {
  return {tokens.begin(), tokens.end()};
}

class RetrievalPrompts : public ::testing::Test {
 protected:
  std::vector<EvaluationPrompt> Make(const RetrievalOptions& options) {
    auto prompts = MakeRetrievalPrompts(engine_, options);
    EXPECT_TRUE(prompts) << (prompts ? "" : prompts.error().message);
    return prompts.value_or(std::vector<EvaluationPrompt>{});
  }
  testing::FakeEngine engine_{{}};
};

TEST_F(RetrievalPrompts, EveryContextSaysWhatIsAsked) {
  const auto prompts = Make({.context_tokens = 4000, .prompts_per_kind = 6});
  ASSERT_EQ(prompts.size(), 18U);
  std::set<std::string> answers;
  for (const EvaluationPrompt& prompt : prompts) {
    EXPECT_EQ(prompt.context.size(), 4000U);
    EXPECT_TRUE(prompt.made);
    ASSERT_EQ(prompt.probes.size(), 1U);
    const Probe& probe = prompt.probes[0];
    const std::string answer = probe.accepted.at(0);
    EXPECT_TRUE(ContainsAnswer(Text(prompt.context), answer)) << prompt.id;
    EXPECT_FALSE(ContainsAnswer(Text(probe.lead), answer)) << prompt.id;
    EXPECT_EQ(Text(probe.answer), " " + answer);
    EXPECT_GT(probe.generate_tokens, probe.answer.size());
    answers.insert(answer);
  }
  EXPECT_GT(answers.size(), 15U);
}

TEST_F(RetrievalPrompts, PlacesAreSpreadOverTheContext) {
  const auto prompts = Make({.context_tokens = 8000, .prompts_per_kind = 8});
  double least = 1;
  double most = 0;
  for (const EvaluationPrompt& prompt : prompts) {
    const std::string text = Text(prompt.context);
    const auto at = static_cast<double>(text.find(prompt.probes[0].accepted[0])) /
                    static_cast<double>(text.size());
    least = std::min(least, at);
    most = std::max(most, at);
  }
  EXPECT_LT(least, 0.2);
  EXPECT_GT(most, 0.8);
}

TEST_F(RetrievalPrompts, SeedsDecideEverything) {
  const auto one = Make({.context_tokens = 2000, .prompts_per_kind = 2, .seed = 1});
  const auto same = Make({.context_tokens = 2000, .prompts_per_kind = 2, .seed = 1});
  const auto other = Make({.context_tokens = 2000, .prompts_per_kind = 2, .seed = 2});
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].context, same[i].context);
    EXPECT_EQ(one[i].probes[0].lead, same[i].probes[0].lead);
    EXPECT_NE(one[i].context, other[i].context);
  }
}

TEST_F(RetrievalPrompts, ShortContextsAreRefused) {
  EXPECT_EQ(MakeRetrievalPrompts(engine_, {.context_tokens = 64}).error().code,
            ErrorCode::kInvalidArgument);
  // Bytes as tokens: a list of pairs alone is longer.
  const auto prompts = MakeRetrievalPrompts(engine_, {.context_tokens = 300});
  ASSERT_FALSE(prompts);
  EXPECT_THAT(prompts.error().message, HasSubstr("too short"));
}

TEST_F(RetrievalPrompts, NoneWhenNoneAreWanted) {
  EXPECT_TRUE(Make({.prompts_per_kind = 0}).empty());
}

}  // namespace
}  // namespace kvserve
