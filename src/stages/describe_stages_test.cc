#include <gtest/gtest.h>

#include "kvserve/codec.h"
#include "kvserve/stages.h"
#include "pipeline/settings.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

TEST(DescribeStages, SaysWhatTheTableSays) {
  const StageTable table = BuiltinStages();
  const auto& stages = DescribeStages();
  ASSERT_EQ(stages.size(), table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    const StageInfo& info = *table[i].info;
    SCOPED_TRACE(info.name);
    EXPECT_EQ(stages[i].id, info.id);
    EXPECT_EQ(stages[i].name, info.name);
    EXPECT_EQ(stages[i].kind, info.kind);
    EXPECT_EQ(stages[i].lossless, info.lossless);
    const auto slots = ParameterSlots(info);
    ASSERT_EQ(stages[i].parameters.size(), slots.size());
    for (std::size_t k = 0; k < slots.size(); ++k) {
      const ParameterDescription& parameter = stages[i].parameters[k];
      const std::string plane = parameter.plane.empty() ? "" : std::string(parameter.plane) + "_";
      EXPECT_EQ(plane + std::string(parameter.name), slots[k].name());
      EXPECT_EQ(parameter.id, slots[k].id);
      EXPECT_EQ(parameter.default_value, slots[k].default_value);
      EXPECT_TRUE(ValueFits(*slots[k].info, parameter.low)) << parameter.name;
      EXPECT_TRUE(ValueFits(*slots[k].info, parameter.high)) << parameter.name;
      EXPECT_EQ(parameter.choices.empty(), parameter.type != "choice") << parameter.name;
    }
  }
}

TEST(DescribeStages, FactsOfProfiles) {
  const auto profile = [](const char* text) { return ParseProfile(text).value(); };
  EXPECT_TRUE(ProfileIsLossless(profile("lossless")));
  EXPECT_TRUE(ProfileIsLossless(profile("none|zstd")));
  EXPECT_FALSE(ProfileIsLossless(profile("uniform|rans")));
  EXPECT_FALSE(ProfileNeedsCalibration(profile("uniform|rans")));
  EXPECT_TRUE(ProfileNeedsCalibration(profile("uniform|rans:tables=calibrated")));
  Profile unknown = profile("uniform|rans");
  unknown.stages[0].id = 0x02EE;
  EXPECT_FALSE(ProfileIsLossless(unknown));
  EXPECT_FALSE(ProfileNeedsCalibration(unknown));
}

}  // namespace
}  // namespace kvserve
