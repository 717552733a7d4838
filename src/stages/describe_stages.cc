// The stage table in the words of the public API.
#include "kvserve/stages.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"
#include "stages/presets.h"
#include "stages/profile_facts.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

std::string_view TypeName(ParameterType type) {
  switch (type) {
    case ParameterType::kInteger: return "integer";
    case ParameterType::kReal: return "real";
    case ParameterType::kBoolean: return "boolean";
    case ParameterType::kChoice: return "choice";
  }
  return "unknown";
}

ParameterDescription Describe(const ParameterSlot& slot) {
  const ParameterInfo& info = *slot.info;
  ParameterDescription described;
  described.id = slot.id;
  if (info.per_plane) described.plane = slot.plane == PlaneKind::kKey ? "k" : "v";
  described.name = info.name;
  described.type = TypeName(info.type);
  described.low = info.low;
  described.high = info.high;
  if (info.type == ParameterType::kBoolean) described.high = 1.0;
  if (info.type == ParameterType::kChoice) {
    described.high = static_cast<double>(info.choices.size()) - 1.0;
    described.choices.assign(info.choices.begin(), info.choices.end());
  }
  described.default_value = slot.default_value;
  described.unit = info.unit;
  described.help = info.help;
  return described;
}

std::vector<StageDescription> DescribeAll() {
  std::vector<StageDescription> stages;
  for (const StageEntry& entry : BuiltinStages()) {
    const StageInfo& info = *entry.info;
    StageDescription stage{info.id,   info.name, info.version, info.kind, info.lossless,
                           info.host, info.cuda, info.summary, {}};
    for (const ParameterSlot& slot : ParameterSlots(info)) {
      stage.parameters.push_back(Describe(slot));
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

}  // namespace

const std::vector<StageDescription>& DescribeStages() {
  static const std::vector<StageDescription> stages = DescribeAll();
  return stages;
}

const std::vector<PresetDescription>& DescribePresets() {
  static const std::vector<PresetDescription> presets(Presets().begin(), Presets().end());
  return presets;
}

std::string_view StageKindName(StageKind kind) {
  return KindName(kind);
}

bool ProfileIsLossless(const Profile& profile) {
  return IsLossless(profile.stages);
}

bool ProfileNeedsCalibration(const Profile& profile) {
  const auto facts = FactsOf(profile.stages, DType::kFloat16, ProfileOrigin::kCaller);
  return facts.has_value() && facts->needs_artefact;
}

std::string_view ProfileMayDrop(const Profile& profile) {
  const auto facts = FactsOf(profile.stages, DType::kFloat16, ProfileOrigin::kCaller);
  return facts ? facts->may_drop : std::string_view();
}

}  // namespace kvserve
