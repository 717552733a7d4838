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
  prompt.score = {.kl = kl, .top1_agreement = 0.5, .reference_nll = reference_nll, .nll = nll};
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

}  // namespace
}  // namespace kvserve
