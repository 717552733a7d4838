#include "pipeline/profile_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline/testing/toy_stages.h"

namespace kvserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Profile Parse(std::string_view text) {
  auto profile = ParseProfileText(text, testing::ToyStages());
  EXPECT_TRUE(profile.has_value()) << text << ": " << profile.error().message;
  return profile ? *profile : Profile{};
}

std::string ParseError(std::string_view text) {
  const auto profile = ParseProfileText(text, testing::ToyStages());
  EXPECT_FALSE(profile.has_value()) << text;
  if (profile) return "";
  EXPECT_EQ(profile.error().code, ErrorCode::kInvalidArgument);
  return profile.error().message;
}

std::vector<unsigned> Ids(const Profile& profile) {
  std::vector<unsigned> ids;
  for (const auto& stage : profile.stages) ids.push_back(stage.id);
  return ids;
}

using Ids_ = std::vector<unsigned>;

TEST(ProfileText, FillsInWhatIsMissing) {
  EXPECT_EQ(Ids(Parse("none")), (Ids_{0x0301, 0x0401}));
  EXPECT_EQ(Ids(Parse("lossless")), (Ids_{0x0303, 0x0403}));
  EXPECT_EQ(Ids(Parse("lossless|none")), (Ids_{0x0303, 0x0401}));
  EXPECT_EQ(Ids(Parse("rans")), (Ids_{0x0301, 0x0403}));
  EXPECT_EQ(Ids(Parse("classes")), (Ids_{0x0304, 0x0401}));
  EXPECT_EQ(Ids(Parse("none|scale|none|classes|rans")), (Ids_{0x0201, 0x0304, 0x0403}));
}

TEST(ProfileText, SetsEveryParameterInIdOrder) {
  const Profile defaults = Parse("scale|classes");
  const std::vector<ParameterValue> scale = {{1, 1.0}, {2, 2.0}};
  const std::vector<ParameterValue> classes = {{1, 0.5}, {2, 0.0}, {3, 126.0}};
  EXPECT_EQ(defaults.stages[0].parameters, scale);
  EXPECT_EQ(defaults.stages[1].parameters, classes);
  EXPECT_EQ(Parse("predict").stages[0].version, 3);
  const Profile set = Parse("scale:factor=4|classes:mode=mean,step=0.25|context:earlier=false");
  EXPECT_EQ(set.stages[0].parameters, (std::vector<ParameterValue>{{1, 4.0}, {2, 4.0}}));
  EXPECT_EQ(set.stages[1].parameters,
            (std::vector<ParameterValue>{{1, 0.25}, {2, 1.0}, {3, 126.0}}));
  EXPECT_EQ(set.stages[2].parameters, (std::vector<ParameterValue>{{1, 0.0}}));
  EXPECT_EQ(Parse("scale:v_factor=8").stages[0].parameters,
            (std::vector<ParameterValue>{{1, 1.0}, {2, 8.0}}));
}

TEST(ProfileText, PrintsTheShortestFormThatParsesBack) {
  const std::pair<const char*, const char*> cases[] = {
      {"none", "none"},
      {"none|none", "none"},
      {"lossless", "lossless"},
      {"lossless|rans", "lossless"},
      {"lossless|none", "lossless|none"},
      {"rans", "rans"},
      {"classes|none", "classes"},
      {"scale:factor=1", "scale:factor=1"},
      {"scale:k_factor=1,v_factor=2", "scale"},
      {"scale:factor=2", "scale:factor=2"},
      {"scale:k_factor=3", "scale:k_factor=3"},
      {"scale:v_factor=3,k_factor=4", "scale:k_factor=4,v_factor=3"},
      {"classes:step=0.1,mode=mean|rans", "classes:step=0.1,mode=mean|rans"},
      {"classes:step=0.5,clip=126,mode=midpoint", "classes"},
      {"classes:step=1e-5", "classes:step=1e-05"},
      {"weigh|scale|predict|classes|context:earlier=0",
       "weigh|scale|predict|classes|context:earlier=false"},
  };
  for (const auto& [text, canonical] : cases) {
    const Profile profile = Parse(text);
    EXPECT_EQ(profile.name, canonical);
    EXPECT_EQ(Parse(profile.name).stages, profile.stages) << text;
  }
  EXPECT_EQ(ProfileText({{0x0999, 1, {}}}, testing::ToyStages()), "stage-0x0999");
}

TEST(ProfileText, NamesTheFaultyPartAndWhatExists) {
  EXPECT_THAT(ParseError("hadamrad|classes"),
              AllOf(HasSubstr("unknown stage 'hadamrad'"), HasSubstr("scale"), HasSubstr("rans")));
  EXPECT_THAT(ParseError("classes:steps=2"), AllOf(HasSubstr("unknown option 'steps' of 'classes'"),
                                                   HasSubstr("step, mode, clip")));
  EXPECT_THAT(ParseError("scale:q_factor=2"), HasSubstr("[k_|v_]factor"));
  EXPECT_THAT(ParseError("predict:x=1"), HasSubstr("it takes none"));
  EXPECT_THAT(ParseError("classes:clip=127"), HasSubstr("clip=127 should be an integer in 1..126"));
  EXPECT_THAT(ParseError("classes:clip=1.5"), HasSubstr("an integer in 1..126"));
  EXPECT_THAT(ParseError("classes:step=nan"), HasSubstr("step=nan"));
  EXPECT_THAT(ParseError("classes:step=0.5x"), HasSubstr("step=0.5x"));
  EXPECT_THAT(ParseError("classes:step="), HasSubstr("step= should be in 1e-06..1e+06"));
  EXPECT_THAT(ParseError("classes:mode=median"), HasSubstr("one of midpoint, mean"));
  EXPECT_THAT(ParseError("context:earlier=yes"), HasSubstr("true or false"));
  EXPECT_THAT(ParseError("classes:step"), HasSubstr("lacks '=value'"));
  EXPECT_THAT(ParseError("classes:"), HasSubstr("lacks '=value'"));
  EXPECT_THAT(ParseError("scale:factor=2,k_factor=4"), HasSubstr("k_factor is set twice"));
  EXPECT_THAT(ParseError("none:x=1"), HasSubstr("'none' takes no options"));
  EXPECT_THAT(ParseError(""), HasSubstr("empty"));
  EXPECT_THAT(ParseError("classes|"), HasSubstr("empty"));
}

TEST(ProfileText, ChecksTheOrder) {
  EXPECT_THAT(ParseError("classes|scale"),
              HasSubstr("transform 'scale' cannot follow a quantizer"));
  EXPECT_THAT(ParseError("classes|lossless"), HasSubstr("cannot follow a quantizer"));
  EXPECT_THAT(ParseError("rans|context"), HasSubstr("cannot follow a codec"));
  EXPECT_THAT(ParseError("scale|weigh"), HasSubstr("selector 'weigh' cannot follow a transform"));
  EXPECT_EQ(Parse("scale|scale:factor=4|classes").stages.size(), 4U);
}

}  // namespace
}  // namespace kvserve
