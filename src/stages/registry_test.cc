// What every stage must keep so that users and bytes can rely on it.
#include "stages/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"

namespace kvserve {
namespace {

TEST(BuiltinStages, HaveUniqueIdsThatSayTheirKind) {
  std::set<std::uint16_t> ids;
  for (const StageEntry& entry : BuiltinStages()) {
    EXPECT_TRUE(ids.insert(entry.info->id).second) << StageIdText(entry.info->id) << " is reused";
    EXPECT_EQ(entry.info->id >> 8, static_cast<unsigned>(entry.info->kind)) << entry.info->name;
    EXPECT_GE(entry.info->version, 1) << entry.info->name;
  }
  EXPECT_TRUE(std::is_sorted(
      BuiltinStages().begin(), BuiltinStages().end(),
      [](const StageEntry& a, const StageEntry& b) { return a.info->id < b.info->id; }));
}

// A name decides the kind in the short form; only `none` is shared.
TEST(BuiltinStages, HaveUniqueLowerCaseNames) {
  std::set<std::string> names;
  for (const StageEntry& entry : BuiltinStages()) {
    const std::string name(entry.info->name);
    const std::string key = name == "none" ? name + std::string(KindName(entry.info->kind)) : name;
    EXPECT_TRUE(names.insert(key).second) << name;
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos)
        << name;
    EXPECT_FALSE(entry.info->summary.empty()) << name;
  }
  EXPECT_NE(FindStage(BuiltinStages(), StageKind::kQuantizer, "none"), nullptr);
  EXPECT_NE(FindStage(BuiltinStages(), StageKind::kCodec, "none"), nullptr);
}

TEST(BuiltinStages, HaveTheFactoryOfTheirKindAlone) {
  for (const StageEntry& entry : BuiltinStages()) {
    const StageKind kind = entry.info->kind;
    EXPECT_EQ(entry.make_selector != nullptr, kind == StageKind::kSelector) << entry.info->name;
    EXPECT_EQ(entry.make_transform != nullptr, kind == StageKind::kTransform) << entry.info->name;
    EXPECT_EQ(entry.make_quantizer != nullptr, kind == StageKind::kQuantizer) << entry.info->name;
    EXPECT_EQ(entry.make_codec != nullptr, kind == StageKind::kCodec) << entry.info->name;
    EXPECT_TRUE(entry.info->host || entry.info->cuda) << entry.info->name;
  }
}

TEST(BuiltinStages, HaveParametersWithUniqueIdsAndDefaultsInRange) {
  for (const StageEntry& entry : BuiltinStages()) {
    std::set<std::uint8_t> ids;
    std::set<std::string> names;
    for (const ParameterSlot& slot : ParameterSlots(*entry.info)) {
      const std::string where = std::string(entry.info->name) + " " + slot.name();
      EXPECT_TRUE(ids.insert(slot.id).second) << where << ": id " << unsigned{slot.id};
      EXPECT_TRUE(names.insert(slot.name()).second) << where;
      EXPECT_TRUE(ValueFits(*slot.info, slot.default_value))
          << where << ": default " << slot.default_value << " is not " << RangeText(*slot.info);
      EXPECT_FALSE(slot.info->help.empty()) << where;
      EXPECT_EQ(slot.info->choices.empty(), slot.info->type != ParameterType::kChoice) << where;
      EXPECT_EQ(slot.info->name.find_first_of(":=,| "), std::string_view::npos) << where;
    }
  }
}

TEST(BuiltinStages, AcceptTheirDefaultsAndBothEndsOfEachRange) {
  const auto make = [](const StageEntry& entry, const std::vector<ParameterValue>& values) {
    const auto settings = CheckedSettings(*entry.info, values, ErrorCode::kInvalidArgument);
    if (!settings) return std::string(settings.error().message);
    const auto error = [](const auto& stage) {
      return stage ? std::string() : std::string(stage.error().message);
    };
    switch (entry.info->kind) {
      case StageKind::kSelector: return error(entry.make_selector(*settings));
      case StageKind::kTransform: return error(entry.make_transform(*settings));
      case StageKind::kQuantizer: return error(entry.make_quantizer(*settings));
      case StageKind::kCodec: return error(entry.make_codec(*settings));
    }
    return std::string("unknown kind");
  };
  for (const StageEntry& entry : BuiltinStages()) {
    const auto slots = ParameterSlots(*entry.info);
    EXPECT_EQ(make(entry, DefaultValues(*entry.info)), "");
    for (std::size_t i = 0; i < slots.size(); ++i) {
      for (const double value : {slots[i].info->low, slots[i].info->high}) {
        if (slots[i].info->type == ParameterType::kChoice) continue;
        auto values = DefaultValues(*entry.info);
        values[i].value = value;
        EXPECT_EQ(make(entry, values), "") << slots[i].name() << " = " << value;
      }
    }
  }
}

}  // namespace
}  // namespace kvserve
