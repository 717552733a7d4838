#include "evaluation/profile_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvserve {
namespace {

PromptScore Prompt(const char* set, double kl, double reference_nll, double nll,
                   std::uint64_t wire_bytes) {
  PromptScore prompt;
  prompt.set = set;
  prompt.answers = {.rows = 10,
                    .kl = 10 * kl,
                    .same_top = 5,
                    .targets = 4,
                    .reference_nll = 4 * reference_nll,
                    .nll = 4 * nll};
  prompt.baseline = {{"nll", reference_nll}};
  prompt.grades = {{"nll", nll}};
  prompt.raw_bytes = 1000;
  prompt.wire_bytes = wire_bytes;
  prompt.encode_s = 0.5;
  prompt.decode_s = 0.25;
  return prompt;
}

TEST(ProfileScore, SumsBytesAndAveragesPrompts) {
  const std::vector<PromptScore> prompts = {Prompt("a", 0.01, 2.0, 2.1, 100),
                                            Prompt("a", 0.03, 3.0, 3.1, 300),
                                            Prompt("b", 0.02, 1.0, 0.9, 200)};
  const ProfileScore total = Summarize("p", prompts);
  EXPECT_EQ(total.profile, "p");
  EXPECT_EQ(total.n, 3U);
  EXPECT_NEAR(total.kl, 0.02, 1e-12);
  EXPECT_NEAR(total.nll_delta, 0.1 / 3, 1e-12);
  EXPECT_EQ(total.raw_bytes, 3000U);
  EXPECT_EQ(total.wire_bytes, 600U);
  EXPECT_DOUBLE_EQ(total.compression_ratio, 5.0);  // of the sums, not the mean of ratios
  EXPECT_DOUBLE_EQ(total.encode_bytes_per_s, 2000.0);
  EXPECT_DOUBLE_EQ(total.decode_bytes_per_s, 4000.0);
  EXPECT_LT(total.accuracy_lower_bound, std::exp(-total.kl));

  const DatasetScore& a = total.datasets.at("a");
  EXPECT_EQ(a.n, 2U);
  EXPECT_DOUBLE_EQ(a.baseline, 2.5);
  EXPECT_DOUBLE_EQ(a.value, 2.6);
  EXPECT_NEAR(a.relative_accuracy, std::exp(-0.1), 1e-12);
  EXPECT_DOUBLE_EQ(a.compression_ratio, 5.0);
  EXPECT_GT(total.datasets.at("b").relative_accuracy, 1.0);
}

TEST(ProfileScore, UntouchedPromptsLoseNothing) {
  const std::vector<PromptScore> prompts(4, Prompt("a", 0.0, 2.0, 2.0, 1000));
  const ProfileScore total = Summarize("none", prompts);
  EXPECT_EQ(total.accuracy_lower_bound, 1.0);
  EXPECT_EQ(total.datasets.at("a").ci95, (Interval{1.0, 1.0}));
  EXPECT_FALSE(std::signbit(total.nll_delta));
}

// One of `right` answers, where the reference is right.
PromptScore Found(const char* set, bool right, std::uint32_t context_tokens,
                  bool reference = true) {
  PromptScore prompt = Prompt(set, 0.1, 1.0, 1.0, 100);
  prompt.task = Task::kRetrieval;
  prompt.made = true;
  prompt.context_tokens = context_tokens;
  prompt.baseline = {{"accuracy", reference ? 1.0 : 0.0}, {"nll", 1.0}};
  prompt.grades = {{"accuracy", right ? 1.0 : 0.0}, {"nll", 2.0}};
  return prompt;
}

TEST(ProfileScore, MadePromptsStandApart) {
  const std::vector<PromptScore> prompts = {
      Prompt("a", 0.01, 2.0, 2.1, 100), Found("passkey", true, 64), Found("passkey", false, 128),
      Found("needle", true, 128), Found("needle", true, 128)};
  const ProfileScore total = Summarize("p", prompts);
  EXPECT_EQ(total.n, 1U);
  EXPECT_EQ(total.raw_bytes, 1000U);
  ASSERT_TRUE(total.retrieval);
  EXPECT_EQ(total.retrieval->n, 4U);
  EXPECT_DOUBLE_EQ(total.retrieval->value, 0.75);
  EXPECT_DOUBLE_EQ(total.retrieval->relative_accuracy, 0.75);
  EXPECT_LT(total.retrieval->ci95.low, 0.75);
  EXPECT_LT(total.retrieval->value_ci95.low, 0.75);
  EXPECT_FALSE(total.retrieval->weak_baseline);
  EXPECT_DOUBLE_EQ(total.retrieval->sets.at("passkey").value, 0.5);
  EXPECT_NEAR(total.retrieval->more.at("nll").relative_accuracy, std::exp(-1.0), 1e-12);
  ASSERT_EQ(total.contexts.size(), 2U);
  EXPECT_EQ(total.contexts[0].context_tokens, 64U);
  EXPECT_EQ(total.contexts[1].retrieval->n, 3U);
  EXPECT_EQ(total.by_workload.at("retrieval").n, 4U);
  EXPECT_EQ(total.by_workload.at("text").n, 1U);
  // Without records the totals are theirs.
  EXPECT_EQ(Summarize("p", std::span(prompts).subspan(1)).n, 4U);
}

TEST(ProfileScore, WeakBaselinesAreMarked) {
  const std::vector<PromptScore> third = {Found("x", true, 64), Found("x", true, 64, false),
                                          Found("x", false, 64, false)};
  EXPECT_TRUE(Summarize("p", third).retrieval->weak_baseline);
  PromptScore guess = Found("mc", true, 0);
  guess.made = false;
  guess.task = Task::kChoice;
  guess.choices = 2;
  EXPECT_TRUE(Summarize("p", std::span(&guess, 1)).datasets.at("mc").weak_baseline);
  const std::vector<PromptScore> many(20, guess);
  EXPECT_FALSE(Summarize("p", many).datasets.at("mc").weak_baseline);
}

TEST(ProfileScore, TasksOfOneSetAreNotMixed) {
  std::vector<PromptScore> prompts(2, Prompt("a", 0.01, 2.0, 2.1, 100));
  prompts[1].task = Task::kMath;
  const ProfileScore total = Summarize("p", prompts);
  EXPECT_EQ(total.datasets.size(), 2U);
  EXPECT_EQ(total.datasets.at("a/math").n, 1U);
}

TEST(ProfileScore, NothingIsNothing) {
  EXPECT_EQ(Summarize("p", {}).n, 0U);
}

}  // namespace
}  // namespace kvserve
