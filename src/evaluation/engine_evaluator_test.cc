#include "evaluation/engine_evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "engine/testing/fake_engine.h"
#include "evaluation/retrieval_prompts.h"
#include "kvserve/codec.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;
using FakeEngine = ::kvserve::testing::FakeEngine;

EvaluatorOptions Options() {
  EvaluatorOptions options;
  options.context_tokens = {100};
  options.scored_tokens = 12;
  options.frame_tokens = 32;
  options.chunk_tokens = 48;
  return options;
}

Record TextRecord(std::string id, std::string set, std::string text) {
  Record record;
  record.id = std::move(id);
  record.set = std::move(set);
  record.text = std::move(text);
  return record;
}

std::vector<Record> Texts() {
  std::vector<Record> records;
  for (const char* set : {"a", "b", "a"}) {
    const std::string id = std::to_string(records.size());
    std::string text;
    while (text.size() < 120) text += "text " + id + " of set " + set + ", ";
    records.push_back(TextRecord(id, set, text));
  }
  records.push_back(TextRecord("short", "a", "too short"));
  return records;
}

Record QuestionRecord() {
  Record record;
  record.id = "q/1";
  record.set = "q";
  record.task = Task::kQa;
  record.context = "Steam is hot water that has become a gas, and it moves engines.";
  record.questions = {{"What moves engines?", {"steam"}}};
  return record;
}

Profile Parse(const char* text) {
  auto profile = ParseProfile(text);
  EXPECT_TRUE(profile) << (profile ? "" : profile.error().message);
  return profile.value_or(Profile{});
}

TEST(EngineEvaluator, UntouchedKvScoresExactly) {
  FakeEngine engine({});
  EngineEvaluator evaluator(engine, Options());
  ASSERT_TRUE(evaluator.AddRecords(Texts(), 0));
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
  EngineEvaluator evaluator(engine, Options());
  ASSERT_TRUE(evaluator.AddRecords(Texts(), 0));
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
  EngineEvaluator evaluator(engine, Options());
  ASSERT_TRUE(evaluator.AddRecords(Texts(), 1));
  EXPECT_EQ(evaluator.prompts(), 2U);  // one of each set
  const Profile profiles[] = {Parse("none"), Parse("none"), Parse("none")};
  ASSERT_TRUE(evaluator.Evaluate(profiles));
  EXPECT_EQ(engine.prefilled_tokens(), 2 * 100);
  EXPECT_EQ(engine.injected_tokens(), 2 * 4 * 100);
  // The next call needs neither captures nor references.
  ASSERT_TRUE(evaluator.Evaluate(std::span(profiles).first(1)));
  EXPECT_EQ(engine.prefilled_tokens(), 2 * 100);
  EXPECT_EQ(engine.injected_tokens(), 2 * 5 * 100);
  EXPECT_EQ(evaluator.captured(), 2U);
}

TEST(EngineEvaluator, TextsMustBeLongEnough) {
  FakeEngine engine({});
  EngineEvaluator evaluator(engine, Options());
  const Record record = TextRecord("x", "s", "short");
  ASSERT_TRUE(evaluator.AddRecords(std::span(&record, 1), 0));
  EXPECT_EQ(evaluator.skipped(), 1U);
  const Profile profiles[] = {Parse("none")};
  const auto scores = evaluator.Evaluate(profiles);
  ASSERT_FALSE(scores);
  EXPECT_EQ(scores.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(scores.error().message, HasSubstr("1 records are too short or too long"));
}

TEST(EngineEvaluator, LengthsAreApartAndQuestionsCountOnce) {
  FakeEngine engine({});
  EvaluatorOptions options = Options();
  options.context_tokens = {50, 100};
  EngineEvaluator evaluator(engine, options);
  auto records = Texts();
  records.push_back(QuestionRecord());
  ASSERT_TRUE(evaluator.AddRecords(records, 0));
  EXPECT_EQ(evaluator.prompts(), 2 * 3 + 1U);
  const Profile profiles[] = {Parse("lossless")};
  const auto scores = evaluator.Evaluate(profiles);
  ASSERT_TRUE(scores) << scores.error().message;
  const ProfileScore& score = scores->front();
  EXPECT_EQ(score.n, 7U);
  ASSERT_EQ(score.contexts.size(), 2U);
  EXPECT_EQ(score.contexts[1].context_tokens, 100U);
  EXPECT_EQ(score.contexts[1].total.n, 3U);
  EXPECT_EQ(score.datasets.at("q").metric, "f1");
  EXPECT_EQ(score.datasets.at("q").value, score.datasets.at("q").baseline);
  EXPECT_EQ(score.by_workload.at("text").n, 6U);
  EXPECT_EQ(score.by_workload.at("qa").kl, 0.0);
}

TEST(EngineEvaluator, MadePromptsStandApart) {
  FakeEngine engine({});
  EngineEvaluator evaluator(engine, Options());
  ASSERT_TRUE(evaluator.AddRecords(Texts(), 0));
  auto prompts = MakeRetrievalPrompts(engine, {.context_tokens = 800, .prompts_per_kind = 2});
  ASSERT_TRUE(prompts) << prompts.error().message;
  evaluator.AddPrompts(std::move(*prompts));
  const Profile profiles[] = {Parse("lossless"), Parse("uniform:k_levels=4,v_levels=4|zstd")};
  const auto scores = evaluator.Evaluate(profiles);
  ASSERT_TRUE(scores) << scores.error().message;
  for (const ProfileScore& score : *scores) {
    EXPECT_EQ(score.n, 3U);
    ASSERT_TRUE(score.retrieval);
    EXPECT_EQ(score.retrieval->n, 6U);
    EXPECT_EQ(score.retrieval->sets.size(), 3U);
    EXPECT_TRUE(score.retrieval->weak_baseline);  // a model of hashes finds nothing
    EXPECT_EQ(score.by_workload.at("retrieval").n, 6U);
  }
  EXPECT_EQ((*scores)[0].retrieval->kl, 0.0);
  EXPECT_GT((*scores)[1].retrieval->kl, 0.1);
}

TEST(EngineEvaluator, GenerationIsScored) {
  FakeEngine engine({});
  EvaluatorOptions options = Options();
  options.generate_tokens = 40;
  EngineEvaluator evaluator(engine, options);
  ASSERT_TRUE(evaluator.AddRecords(Texts(), 0));
  const Profile profiles[] = {Parse("none"), Parse("uniform:k_levels=4,v_levels=4|zstd")};
  const auto scores = evaluator.Evaluate(profiles);
  ASSERT_TRUE(scores) << scores.error().message;
  const GenerationScore& same = *(*scores)[0].generation;
  EXPECT_EQ(same.n, 3U);
  EXPECT_EQ(same.tokens, 40.0);
  EXPECT_EQ(same.kl, 0.0);
  EXPECT_EQ(same.equal_share, 1.0);
  EXPECT_EQ(same.same_texts, 3U);
  EXPECT_EQ(same.first_difference, 40.0);
  const GenerationScore& other = *(*scores)[1].generation;
  EXPECT_GT(other.kl, 0.1);
  EXPECT_LT(other.equal_share, 0.5);
  EXPECT_EQ(other.same_texts, 0U);
  EXPECT_EQ((*scores)[1].datasets.at("a").metric, "nll");  // not touched by what was generated
}

TEST(EngineEvaluator, DroppedTokensAreTakenOutOfTheSequence) {
  FakeEngine engine({});
  EvaluatorOptions options = Options();
  options.frame_tokens = 1000;
  EngineEvaluator evaluator(engine, options);
  ASSERT_TRUE(evaluator.AddRecords(Texts(), 0));
  const Profile profiles[] = {Parse("window:sinks=4,recent=32,outside=0|mixed|rans"),
                              Parse("window:sinks=4,recent=32,outside=0.25|mixed|rans")};
  const auto scores = evaluator.Evaluate(profiles);
  ASSERT_TRUE(scores) << scores.error().message;
  EXPECT_EQ(engine.dropped_tokens(), 3 * (100 - 4 - 32));
  EXPECT_GT((*scores)[0].kl, 0.0);
  EXPECT_GT((*scores)[0].compression_ratio, (*scores)[1].compression_ratio);
  EXPECT_EQ((*scores)[0].raw_bytes, (*scores)[1].raw_bytes);  // dropped tokens count
}

TEST(EngineEvaluator, SelectorsGetTheQueriesThatTheyNeed) {
  FakeEngine engine({});
  EngineEvaluator evaluator(engine, Options());
  ASSERT_TRUE(evaluator.AddRecords(Texts(), 0));
  const Profile profiles[] = {Parse("none"), Parse("attention:keep=0.5,outside=0.25|mixed|rans")};
  ASSERT_FALSE(*NeedsQueries(profiles[0], DType::kFloat16));
  ASSERT_TRUE(*NeedsQueries(profiles[1], DType::kFloat16));
  ASSERT_TRUE(evaluator.Evaluate(std::span(profiles).first(1)));
  EXPECT_EQ(engine.prefilled_tokens(), 300);
  const auto scores = evaluator.Evaluate(profiles);
  ASSERT_TRUE(scores) << scores.error().message;
  EXPECT_EQ(engine.prefilled_tokens(), 600);  // the KV was there, the queries not
  EXPECT_EQ((*scores)[0].kl, 0.0);
  EXPECT_GT((*scores)[1].kl, 0.0);
  ASSERT_TRUE(evaluator.Evaluate(profiles));
  EXPECT_EQ(engine.prefilled_tokens(), 600);
}

TEST(EngineEvaluator, ASecondRunWithAStorePrefillsNothing) {
  const std::string folder = ::testing::TempDir() + "evaluator_store";
  std::filesystem::remove_all(folder);
  std::vector<std::string> documents;
  for (const int expected_prefills : {3, 0}) {
    FakeEngine engine({});
    auto store = CaptureStore::Open(folder,
                                    {.model = engine.info().fingerprint,
                                     .geometry = engine.info().geometry,
                                     .vocabulary = engine.info().vocabulary,
                                     .chunk_tokens = 48},
                                    [](const std::string& text) { FAIL() << text; });
    ASSERT_TRUE(store);
    EngineEvaluator evaluator(engine, Options(), {}, &*store);
    ASSERT_TRUE(evaluator.AddRecords(Texts(), 0));
    const Profile profiles[] = {Parse("uniform:k_levels=4,v_levels=4|zstd"), Parse("none")};
    const auto scores = evaluator.Evaluate(profiles);
    ASSERT_TRUE(scores) << scores.error().message;
    EXPECT_EQ(engine.prefilled_tokens(), expected_prefills * 100);
    EXPECT_EQ((*scores)[1].kl, 0.0);
    documents.push_back(std::to_string((*scores)[0].kl) + " " +
                        std::to_string((*scores)[0].nll_delta));
  }
  EXPECT_EQ(documents[0], documents[1]);
  std::filesystem::remove_all(folder);
}

TEST(EngineEvaluator, ErrorsNameTheProfileAndCloseSequences) {
  ::kvserve::testing::FakeEngineOptions options;
  options.nan_token = 't';
  FakeEngine engine(options);
  EngineEvaluator evaluator(engine, Options());
  ASSERT_TRUE(evaluator.AddRecords(Texts(), 0));
  const Profile profiles[] = {Parse("uniform:k_levels=4,v_levels=4|zstd")};
  const auto scores = evaluator.Evaluate(profiles);
  ASSERT_FALSE(scores);
  EXPECT_THAT(scores.error().message, HasSubstr("profile "));
  EXPECT_EQ(engine.open_sequences(), 0);
}

}  // namespace
}  // namespace kvserve
