#include "pipeline/profile_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline/profile_text.h"
#include "pipeline/testing/toy_stages.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;

std::vector<StageSpec> Stages(std::string_view text) {
  return ParseProfileText(text, testing::ToyStages()).value().stages;
}

std::string Error(std::string_view chain, std::string_view options) {
  auto stages = Stages(chain);
  const Status status = SetChainOptions(options, testing::ToyStages(), stages);
  EXPECT_FALSE(status.has_value()) << options;
  return status ? "" : status.error().message;
}

TEST(ChainOptions, SetTheStageThatHasThem) {
  auto stages = Stages("scale|classes|rans");
  ASSERT_TRUE(SetChainOptions("v_factor=8,mode=mean", testing::ToyStages(), stages));
  EXPECT_EQ(stages, Stages("scale:v_factor=8|classes:mode=mean|rans"));
}

TEST(ChainOptions, MayNameTheStage) {
  auto stages = Stages("scale|scale:factor=3|classes");
  ASSERT_TRUE(SetChainOptions("classes.step=0.25", testing::ToyStages(), stages));
  EXPECT_EQ(stages, Stages("scale|scale:factor=3|classes:step=0.25"));
}

TEST(ChainOptions, RefuseWhatNoStageOrSeveralHave) {
  EXPECT_THAT(Error("scale|classes", "depth=3"), HasSubstr("unknown option 'depth'; it takes "));
  EXPECT_THAT(Error("scale|scale|classes", "factor=3"), HasSubstr("of scale and scale"));
  EXPECT_THAT(Error("scale|classes", "delta.factor=3"), HasSubstr("no stage 'delta'"));
  EXPECT_THAT(Error("scale|classes", "scale.depth=3"), HasSubstr("unknown option 'depth' of"));
  EXPECT_THAT(Error("scale|classes", "factor"), HasSubstr("lacks '=value'"));
  EXPECT_THAT(Error("scale|classes", "factor=1,k_factor=2"), HasSubstr("set twice"));
  EXPECT_THAT(Error("scale|classes", "mode=median"), HasSubstr("one of"));
}

TEST(ChainOptions, TextSetsTheSameAgain) {
  const auto usual = Stages("scale:factor=2|classes|rans");
  for (const std::string_view options : {"factor=5", "k_factor=7", "v_factor=7,step=0.25"}) {
    auto stages = usual;
    ASSERT_TRUE(SetChainOptions(options, testing::ToyStages(), stages));
    EXPECT_EQ(ChainOptionsText(stages, usual, testing::ToyStages()), options);
  }
  EXPECT_EQ(ChainOptionsText(usual, usual, testing::ToyStages()), "");
}

}  // namespace
}  // namespace kvserve
