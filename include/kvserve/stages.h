// The strategy space of this build: every stage that a profile can be made of, with its parameters.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvserve/profile.h"

namespace kvserve {

// One value of a stage. Texts live as long as the process.
struct ParameterDescription {
  std::uint8_t id = 0;
  std::string_view plane;  // "k" or "v" for one half of a parameter that both have; else empty
  std::string_view name;   // without the plane: the short form takes levels, k_levels, v_levels
  std::string_view type;   // "integer", "real", "boolean" or "choice"
  double low = 0.0;        // legal range; a boolean is 0 or 1, a choice an index
  double high = 0.0;
  double default_value = 0.0;
  std::vector<std::string_view> choices;  // of type "choice"
  std::string_view unit;
  std::string_view help;
};

struct StageDescription {
  std::uint16_t id = 0;
  std::string_view name;
  std::uint8_t version = 0;
  StageKind kind = StageKind::kTransform;
  bool lossless = false;  // a profile is bit-exact when all of its stages are
  bool host = true;       // devices that it runs on
  bool cuda = false;
  std::string_view summary;
  std::vector<ParameterDescription> parameters;  // in ascending id order
};

// In ascending id order. Safe from any thread.
[[nodiscard]] const std::vector<StageDescription>& DescribeStages();

// A profile with a name, made of stages of this build: a method that somebody published, or a
// combination of their parts. Texts live as long as the process.
struct PresetDescription {
  std::string_view name;     // what ParseProfile takes, alone or as "name:option=value,..."
  std::string_view profile;  // its short form
  std::string_view source;   // where it comes from, with the year
  std::string_view differs;  // from there
};

// In the order of docs/PRESETS.md. Safe from any thread.
[[nodiscard]] const std::vector<PresetDescription>& DescribePresets();

// "selector", "transform", "quantizer" or "codec".
[[nodiscard]] std::string_view StageKindName(StageKind kind);

// Whether decoding gives back every bit; false for a stage that this build lacks.
[[nodiscard]] bool ProfileIsLossless(const Profile& profile);

// Whether encoding and decoding want a calibration artefact. False for a profile that cannot be.
[[nodiscard]] bool ProfileNeedsCalibration(const Profile& profile);

// The selector by which frames may leave tokens out, which engines that cannot drop tokens refuse;
// empty when there is none. Lives as long as the process.
[[nodiscard]] std::string_view ProfileMayDrop(const Profile& profile);

}  // namespace kvserve
