// Parameter values of a stage against its schema: defaults, range checks, text of one value.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/stage.h"

namespace kvserve {

// One value of a stage on the wire: a parameter, or the K or V half of a per-plane one.
struct ParameterSlot {
  const ParameterInfo* info = nullptr;
  std::uint8_t id = 0;
  PlaneKind plane = PlaneKind::kKey;
  double default_value = 0.0;

  [[nodiscard]] std::string name() const;  // "levels", or "k_levels" and "v_levels" when per plane
};

// Every value of the stage in ascending id order.
[[nodiscard]] std::vector<ParameterSlot> ParameterSlots(const StageInfo& info);

// All values at their defaults, in ascending id order.
[[nodiscard]] std::vector<ParameterValue> DefaultValues(const StageInfo& info);

// "2..256", "one of midpoint, mean", "true or false".
[[nodiscard]] std::string RangeText(const ParameterInfo& info);
// Shortest text that ParseValue reads back to the same value.
[[nodiscard]] std::string ValueText(const ParameterInfo& info, double value);
// kInvalidArgument says what the parameter takes.
[[nodiscard]] Result<double> ParseValue(const ParameterInfo& info, std::string_view text);

// True when the value is in range and, unless the parameter is real, integral.
[[nodiscard]] bool ValueFits(const ParameterInfo& info, double value);

// The settings of a stage from values that may be hostile: exactly the ids that this version of the
// stage has, in ascending order, each in range; what came later has its default. Errors have code
// `fault` and name stage, parameter and value.
[[nodiscard]] Result<Settings> CheckedSettings(const StageInfo& info, std::uint8_t version,
                                               std::span<const ParameterValue> values,
                                               ErrorCode fault);
// Of the newest version.
[[nodiscard]] inline Result<Settings> CheckedSettings(const StageInfo& info,
                                                      std::span<const ParameterValue> values,
                                                      ErrorCode fault) {
  return CheckedSettings(info, info.version, values, fault);
}

}  // namespace kvserve
