#include <gtest/gtest.h>

#include "pipeline/testing/weighing.h"

namespace kvserve {

const StageEntry& WindowStage();

namespace {

using testing::Weighing;
using Row = std::vector<float>;

TEST(Window, KeepsSinksAndRecentTokensOfThePrompt) {
  const Weighing first({{1, 2, 2}, {1, 2, 0}}, {0, 8});
  const auto weights =
      first.Weigh(WindowStage(), {{"sinks", 2}, {"recent", 3}, {"outside", 0}, {"inside", 4}});
  ASSERT_TRUE(weights);
  EXPECT_EQ(*weights, Weighing::Weights(3, Row{4, 4, 0, 0, 0, 4, 4, 4}));
}

TEST(Window, FramesBeforeThePromptsEndHaveNoRecentTokens) {
  Weighing frame({{1, 2, 2}}, {8, 12});
  frame.prompt_tokens = 14;
  const auto weights = frame.Weigh(WindowStage(), {{"recent", 3}, {"outside", 0.25}});
  ASSERT_TRUE(weights);
  EXPECT_EQ(*weights, Weighing::Weights(2, Row{.25, .25, .25, 1}));
}

TEST(Window, WindowLayersMayHoldFewTokensOrNone) {
  Weighing frame({{1, 2, 2}, {1, 2, 2, 3}, {1, 2, 2, 1}}, {0, 6}, 8);
  frame.prompt_tokens = 8;
  const auto weights = frame.Weigh(WindowStage(), {{"sinks", 1}, {"recent", 3}, {"outside", 0.5}});
  ASSERT_TRUE(weights);
  ASSERT_EQ(weights->size(), 6U);
  EXPECT_EQ((*weights)[0], (Row{1, .5, .5, .5, .5, 1}));
  EXPECT_EQ((*weights)[2], (Row{1}));  // token 5 alone
  EXPECT_TRUE((*weights)[4].empty());
}

TEST(Window, MultipliesTheWeightsOfOthers) {
  const Weighing frame({{1, 2, 2}}, {0, 4});
  Weighing::Weights weights(2, Row{2, 4, 8, 16});
  const std::map<std::string, double> options = {
      {"sinks", 1}, {"recent", 1}, {"outside", 0.5}, {"inside", 2}};
  ASSERT_TRUE(frame.WeighOn(WindowStage(), options, weights));
  EXPECT_EQ(weights, Weighing::Weights(2, Row{4, 2, 4, 32}));
}

TEST(Window, DropsOnlyWithoutWeightOutside) {
  EXPECT_TRUE(testing::MakeSelector(WindowStage(), {{"outside", 0}}).value()->may_drop());
  EXPECT_FALSE(testing::MakeSelector(WindowStage(), {}).value()->may_drop());
}

TEST(Window, NoWeightOutsideIsTooSmallForAFloat) {
  const Weighing frame({{1, 2, 2}}, {0, 4});
  const auto weights =
      frame.Weigh(WindowStage(), {{"recent", 0}, {"sinks", 1}, {"outside", 1e-50}});
  ASSERT_TRUE(weights);
  EXPECT_GT((*weights)[0][3], 0.0F);
}

TEST(Window, RefusesParametersOutOfRange) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, double>>{
           {"sinks", -1}, {"recent", 1e9}, {"outside", -0.5}, {"outside", 1.5}, {"inside", 0.5}}) {
    EXPECT_FALSE(testing::MakeSelector(WindowStage(), {{name, value}})) << name << " " << value;
  }
}

}  // namespace
}  // namespace kvserve
