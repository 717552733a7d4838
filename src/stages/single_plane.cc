#include "stages/single_plane.h"

#include <algorithm>
#include <string>

#include "base/try.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

double ValueOf(const StageSpec& stage, std::uint8_t id, double otherwise) {
  const auto found = std::ranges::find(stage.parameters, id, &ParameterValue::id);
  return found == stage.parameters.end() ? otherwise : found->value;
}

Status CheckParameter(const StageInfo& info, const StageSpec& stage,
                      const ParameterInfo& parameter) {
  const auto v_id = static_cast<std::uint8_t>(parameter.id + 1);
  const double k = ValueOf(stage, parameter.id, parameter.default_k);
  const double v = ValueOf(stage, v_id, parameter.default_v);
  if (v == k || v == parameter.default_v) return {};
  const std::string name(parameter.name);
  return MakeError(ErrorCode::kInvalidArgument,
                   "stage " + std::string(info.name) + ": v_" + name + "=" +
                       ValueText(parameter, v) + " is for V planes, and no layer of this model " +
                       "has any (single-plane layers, as MLA's); set " + name + " or k_" + name);
}

}  // namespace

Status CheckSplitSettings(const Profile& profile, const KvGeometry& geometry) {
  if (!std::ranges::all_of(geometry.layers, &LayerGeometry::single_plane)) return {};
  for (const StageSpec& stage : profile.stages) {
    const StageEntry* const entry = FindStage(BuiltinStages(), stage.id);
    if (entry == nullptr) continue;
    for (const ParameterInfo& parameter : entry->info->parameters) {
      if (parameter.per_plane) KVSERVE_TRY(CheckParameter(*entry->info, stage, parameter));
    }
  }
  return {};
}

}  // namespace kvserve
