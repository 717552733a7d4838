#include "evaluation/engine_evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/testing/fake_engine.h"
#include "kvserve/codec.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;
using FakeEngine = ::kvserve::testing::FakeEngine;

constexpr LmOptions kOptions{
    .context_tokens = 100, .scored_tokens = 12, .frame_tokens = 32, .chunk_tokens = 48};

std::vector<Record> Texts() {
  std::vector<Record> records;
  for (const char* set : {"a", "b", "a"}) {
    const std::string id = std::to_string(records.size());
    std::string text;
    while (text.size() < 120) text += "text " + id + " of set " + set + ", ";
    records.push_back({id, set, "lm", text});
  }
  records.push_back({"short", "a", "lm", "too short"});
  return records;
}

Profile Parse(const char* text) {
  auto profile = ParseProfile(text);
  EXPECT_TRUE(profile) << (profile ? "" : profile.error().message);
  return profile.value_or(Profile{});
}

TEST(EngineEvaluator, UntouchedKvScoresExactly) {
  FakeEngine engine({});
  EngineEvaluator evaluator(engine, kOptions);
  ASSERT_TRUE(evaluator.AddTexts(Texts(), 0));
  EXPECT_EQ(evaluator.prompts(), 3U);
  EXPECT_EQ(evaluator.skipped(), 1U);
  const Profile profiles[] = {Parse("none"), Parse("lossless")};
  const auto scores = evaluator.Evaluate(profiles);
  ASSERT_TRUE(scores) << scores.error().message;
  for (const ProfileScore& score : *scores) {
    EXPECT_EQ(score.kl, 0.0) << score.profile;
    EXPECT_EQ(score.kl_ci95, Interval{});
    EXPECT_EQ(score.top1_agreement, 1.0);
    EXPECT_EQ(score.nll_delta, 0.0);
    EXPECT_EQ(score.accuracy_lower_bound, 1.0);
    ASSERT_EQ(score.datasets.size(), 2U);
    EXPECT_EQ(score.datasets.at("a").n, 2U);
    EXPECT_EQ(score.datasets.at("a").relative_accuracy, 1.0);
    EXPECT_GT(score.wire_bytes, 0U);
  }
  EXPECT_EQ((*scores)[0].raw_bytes, (*scores)[1].raw_bytes);
  EXPECT_EQ(engine.open_sequences(), 0);
}

TEST(EngineEvaluator, AlteredKvIsSeen) {
  FakeEngine engine({});  // its logits hang on every byte of the KV
  EngineEvaluator evaluator(engine, kOptions);
  ASSERT_TRUE(evaluator.AddTexts(Texts(), 0));
  const Profile profiles[] = {Parse("uniform:k_levels=4,v_levels=4|zstd")};
  const auto scores = evaluator.Evaluate(profiles);
  ASSERT_TRUE(scores) << scores.error().message;
  EXPECT_GT((*scores)[0].kl, 0.1);
  EXPECT_LE((*scores)[0].kl_ci95.low, (*scores)[0].kl);
  EXPECT_GE((*scores)[0].kl_ci95.high, (*scores)[0].kl);
  EXPECT_DOUBLE_EQ((*scores)[0].accuracy_lower_bound, std::exp(-(*scores)[0].kl_ci95.high));
}

TEST(EngineEvaluator, PromptsArePrefilledOnceForAllProfiles) {
  FakeEngine engine({});
  EngineEvaluator evaluator(engine, kOptions);
  ASSERT_TRUE(evaluator.AddTexts(Texts(), 2));
  EXPECT_EQ(evaluator.prompts(), 2U);
  const Profile profiles[] = {Parse("none"), Parse("none"), Parse("none")};
  ASSERT_TRUE(evaluator.Evaluate(profiles));
  EXPECT_EQ(engine.injected_tokens(), 2 * 4 * 100);
}

TEST(EngineEvaluator, TextsMustBeLongEnough) {
  FakeEngine engine({});
  EngineEvaluator evaluator(engine, kOptions);
  const Record record{"x", "s", "lm", "short"};
  const auto status = evaluator.AddTexts(std::span(&record, 1), 0);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(status.error().message, HasSubstr("112 tokens"));
}

TEST(EngineEvaluator, ErrorsNameTheProfileAndCloseSequences) {
  ::kvserve::testing::FakeEngineOptions options;
  options.nan_token = 't';
  FakeEngine engine(options);
  EngineEvaluator evaluator(engine, kOptions);
  ASSERT_TRUE(evaluator.AddTexts(Texts(), 0));
  const Profile profiles[] = {Parse("uniform:k_levels=4,v_levels=4|zstd")};
  const auto scores = evaluator.Evaluate(profiles);
  ASSERT_FALSE(scores);
  EXPECT_THAT(scores.error().message, HasSubstr("profile "));
  EXPECT_EQ(engine.open_sequences(), 0);
}

}  // namespace
}  // namespace kvserve
