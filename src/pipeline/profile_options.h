// Options of stages in the short form of profiles: `name=value`, where `levels=8` of a per-plane
// parameter sets K and V, `k_levels=8` or `v_levels=8` one of them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/profile.h"
#include "pipeline/stage.h"

namespace kvserve {

// Sets every slot that the option names: one, or both halves of a per-plane parameter. `is_set` is
// [slot], as `values`; a slot that is set twice is an error. kInvalidArgument names option or value
// and says what exists.
[[nodiscard]] Status SetOption(const StageInfo& info, std::string_view option,
                               std::vector<bool>& is_set, std::vector<ParameterValue>& values);

// The options, separated by commas, of values that differ from `usual`; both are [slot].
[[nodiscard]] std::string OptionsText(const StageInfo& info, std::span<const ParameterValue> values,
                                      std::span<const ParameterValue> usual);

// Sets options, separated by commas, of a chain whose stages the table has: `name=value` of the
// stage that has it, or `stage.name=value` where several have. kInvalidArgument names an option
// that no stage has, that several have, or whose value does not fit.
[[nodiscard]] Status SetChainOptions(std::string_view options, StageTable table,
                                     std::vector<StageSpec>& stages);

// What SetChainOptions takes to make `stages` of `usual`, which has the same stages with other
// values.
[[nodiscard]] std::string ChainOptionsText(const std::vector<StageSpec>& stages,
                                           const std::vector<StageSpec>& usual, StageTable table);

// `text` cut at every separator; at least one part.
[[nodiscard]] std::vector<std::string_view> SplitText(std::string_view text, char separator);

}  // namespace kvserve
