#include "stages/registry.h"

#include <algorithm>
#include <vector>

namespace kvserve {

#define KVSERVE_STAGE(stage) const StageEntry& stage##Stage();
#include "stages/stages.def"
#undef KVSERVE_STAGE

namespace {

std::vector<StageEntry> Collect() {
  std::vector<StageEntry> table;
#define KVSERVE_STAGE(stage) table.push_back(stage##Stage());
#include "stages/stages.def"
#undef KVSERVE_STAGE
  std::sort(table.begin(), table.end(),
            [](const StageEntry& a, const StageEntry& b) { return a.info->id < b.info->id; });
  return table;
}

}  // namespace

StageTable BuiltinStages() {
  static const std::vector<StageEntry> table = Collect();
  return table;
}

}  // namespace kvserve
