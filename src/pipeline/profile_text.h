// The short form of a profile: `name:option=value,...|name|...` and back.
#pragma once

#include <string>
#include <string_view>

#include "kvserve/error.h"
#include "kvserve/profile.h"
#include "pipeline/stage.h"

namespace kvserve {

// Stages in the order selectors, transforms, one quantizer, one codec; the kind follows from the
// name. Options left out have their defaults; `levels=8` of a per-plane option sets K and V,
// `k_levels=8` or `v_levels=8` one of them. A missing quantizer or codec is `none`, and so is a
// segment `none`. The quantizer `lossless` alone brings the codec `rans`. The profile's name is its
// canonical form. kInvalidArgument names the faulty stage, option or value and says what exists.
[[nodiscard]] Result<Profile> ParseProfileText(std::string_view text, StageTable table);

// Canonical short form: only options that differ from their defaults, no `none` that is implied;
// parsing it gives the same stages. Stages that the table lacks are written as `stage-0x0201`.
[[nodiscard]] std::string ProfileText(const std::vector<StageSpec>& stages, StageTable table);

}  // namespace kvserve
