// Presets are profiles like any other: they parse, code, take options and keep their names.
#include "stages/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kvserve/codec.h"
#include "pipeline/profile_text.h"
#include "pipeline/stage_lookup.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;

std::string ParseError(std::string_view text) {
  const auto profile = ParseProfile(text);
  EXPECT_FALSE(profile.has_value()) << text;
  return profile ? "" : profile.error().message;
}

TEST(Presets, HaveUniqueNamesAndTexts) {
  std::set<std::string_view> names;
  for (const PresetDescription& preset : Presets()) {
    EXPECT_TRUE(names.insert(preset.name).second) << preset.name;
    EXPECT_EQ(preset.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"),
              std::string_view::npos);
    EXPECT_NE(preset.source.find("20"), std::string_view::npos) << preset.name << ": year?";
    for (const std::string_view text : {preset.profile, preset.source, preset.differs}) {
      EXPECT_FALSE(text.empty()) << preset.name;
      EXPECT_EQ(text.find('\n'), std::string_view::npos) << preset.name;
    }
  }
}

TEST(Presets, AreTheChainsThatTheyName) {
  for (const PresetDescription& preset : Presets()) {
    const auto profile = ParseProfile(preset.name);
    ASSERT_TRUE(profile.has_value()) << preset.name << ": " << profile.error().message;
    EXPECT_EQ(profile->name, preset.name);
    const Profile chain = ParseProfileText(preset.profile, BuiltinStages()).value();
    EXPECT_EQ(profile->stages, chain.stages);
    EXPECT_EQ(chain.name, preset.profile) << "not in canonical form";
  }
}

// A name that is a stage's too means the same either way.
TEST(Presets, NamedAsAStageAreThatStage) {
  for (const PresetDescription& preset : Presets()) {
    if (FindStage(BuiltinStages(), preset.name) == nullptr) continue;
    EXPECT_EQ(ParseProfile(preset.name)->stages,
              ParseProfileText(preset.name, BuiltinStages())->stages)
        << preset.name;
  }
}

TEST(Presets, TakeOptionsOfTheirStages) {
  const Profile profile = ParseProfile("kivi2:v_group=48,levels=8").value();
  EXPECT_EQ(profile.name, "kivi2:levels=8,v_group=48");
  EXPECT_EQ(ParseProfile(profile.name).value().stages, profile.stages);
  EXPECT_EQ(ParseProfile("kivi2:k_levels=4").value().name, "kivi2");
  EXPECT_EQ(ParseProfile("published:mixed.k_levels=8,seed=5").value().name,
            "published:seed=5,k_levels=8");
}

TEST(Presets, SayWhatIsWrongInOneLine) {
  EXPECT_THAT(ParseError("kivi2:depth=2"),
              HasSubstr("unknown option 'depth'; it takes [k_|v_]levels"));
  EXPECT_THAT(ParseError("kivi2:k_levels=1"), HasSubstr("2..256"));
  EXPECT_THAT(ParseError("kivi2:"), HasSubstr("unknown option ''"));
  EXPECT_THAT(ParseError("kivi2|rans"), HasSubstr("'kivi2' is a whole profile"));
  EXPECT_THAT(ParseError("kivi3"), HasSubstr("presets are published"));
}

}  // namespace
}  // namespace kvserve
