// Evaluation with real models: the floor is exactly 0, and what is asked can be answered.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/llama/model_test_support.h"
#include "evaluation/engine_evaluator.h"
#include "evaluation/retrieval_prompts.h"
#include "kvserve/codec.h"

namespace kvserve {
namespace {

std::string Prose() {
  std::string text;
  for (int i = 0; i < 120; ++i) {
    text += "On day " + std::to_string(i * 37) + " the harbour master wrote that " +
            std::to_string(i % 9 + 2) + " ships had come in from the north. ";
  }
  return text;
}

std::vector<Record> Records() {
  std::vector<Record> records(3);
  records[0].set = "prose";
  records[0].text = Prose();
  records[1].set = "question";
  records[1].task = Task::kQa;
  records[1].context = Prose().substr(0, 1500);
  records[1].questions = {{"Where did the ships come from?", {"the north", "north"}}};
  records[2].set = "sum";
  records[2].task = Task::kMath;
  records[2].questions = {{"Tom has two apples and buys three. How many has he?", {"5"}}};
  return records;
}

class EvaluatorModelTest : public testing::TestWithParam<const char*> {};

TEST_P(EvaluatorModelTest, TheFloorIsExactlyZero) {
  const auto engine = OpenTestModel(GetParam(), DType::kFloat16, 1);
  ASSERT_NE(engine, nullptr);
  EvaluatorOptions options;
  options.context_tokens = {300, 700};  // shorter and longer than the window of one of the models
  options.scored_tokens = 40;
  options.generate_tokens = 24;
  options.frame_tokens = 96;
  EngineEvaluator evaluator(*engine, options);
  ASSERT_TRUE(evaluator.AddRecords(Records(), 0));
  auto prompts = MakeRetrievalPrompts(*engine, {.context_tokens = 700, .prompts_per_kind = 1});
  ASSERT_TRUE(prompts) << prompts.error().message;
  evaluator.AddPrompts(std::move(*prompts));
  std::vector<Profile> profiles;
  for (const char* text : {"none", "lossless", "uniform:levels=8|rans"}) {
    const auto profile = ParseProfile(text);
    ASSERT_TRUE(profile);
    profiles.push_back(*profile);
  }
  const auto scores = evaluator.Evaluate(profiles);
  ASSERT_TRUE(scores) << scores.error().message;
  for (std::size_t i = 0; i < 2; ++i) {
    const ProfileScore& score = (*scores)[i];
    EXPECT_EQ(score.n, 4U);
    EXPECT_EQ(score.kl, 0.0) << score.profile;
    EXPECT_EQ(score.top1_agreement, 1.0);
    EXPECT_EQ(score.nll_delta, 0.0);
    EXPECT_EQ(score.retrieval->kl, 0.0);
    EXPECT_EQ(score.generation->kl, 0.0);
    EXPECT_EQ(score.generation->equal_share, 1.0);
    for (const auto& [name, set] : score.datasets) EXPECT_EQ(set.value, set.baseline) << name;
    for (const auto& [name, set] : score.retrieval->sets) EXPECT_EQ(set.value, set.baseline);
  }
  EXPECT_GT((*scores)[2].kl, 1e-4);
  const auto again = evaluator.Evaluate(std::span(profiles).last(1));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->front().kl, (*scores)[2].kl);
  EXPECT_EQ(again->front().retrieval->kl, (*scores)[2].retrieval->kl);
}

INSTANTIATE_TEST_SUITE_P(Models, EvaluatorModelTest, testing::ValuesIn(kTestModels),
                         [](const auto& info) {
                           return std::string(info.param[0] == 's' ? "SmolLM2" : "Gemma3");
                         });

TEST(RetrievalModelTest, ASmallModelFindsMostOfWhatIsAsked) {
  const auto engine = OpenTestModel("smollm2-f16.gguf", DType::kFloat16, 1);
  ASSERT_NE(engine, nullptr);
  EngineEvaluator evaluator(*engine, {});
  auto prompts = MakeRetrievalPrompts(*engine, {.context_tokens = 768, .prompts_per_kind = 4});
  ASSERT_TRUE(prompts) << prompts.error().message;
  evaluator.AddPrompts(std::move(*prompts));
  const auto profile = ParseProfile("none");
  ASSERT_TRUE(profile);
  const auto scores = evaluator.Evaluate(std::span(&*profile, 1));
  ASSERT_TRUE(scores) << scores.error().message;
  for (const auto& [name, set] : scores->front().retrieval->sets) {
    EXPECT_FALSE(set.weak_baseline) << name << " " << set.baseline;
  }
  EXPECT_GT(scores->front().retrieval->baseline, 0.8);
}

}  // namespace
}  // namespace kvserve
