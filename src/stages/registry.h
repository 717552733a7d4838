// The stages of this build as one table; the only place that sees all of them.
#pragma once

#include "pipeline/stage.h"

namespace kvserve {

// Every stage named in stages.def, in ascending id order. The table lives as long as the process;
// safe from any thread.
[[nodiscard]] StageTable BuiltinStages();

}  // namespace kvserve
