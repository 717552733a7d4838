// Named profiles: published methods made of this build's stages, and combinations of their parts.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kvserve/error.h"
#include "kvserve/profile.h"
#include "kvserve/stages.h"

namespace kvserve {

// docs/PRESETS.md says more about each.
[[nodiscard]] std::span<const PresetDescription> Presets();

// Null for a name that no preset has.
[[nodiscard]] const PresetDescription* FindPreset(std::string_view name);

// Whether the text is a preset, alone or with options.
[[nodiscard]] bool NamesPreset(std::string_view text);

// Of a text that NamesPreset. Options set those of the preset's stages; the profile's name is the
// preset's with the options that differ. kInvalidArgument names an option that no stage of the
// preset has, that several have, or whose value does not fit.
[[nodiscard]] Result<Profile> ParsePreset(std::string_view text);

// "published, kivi2, ...".
[[nodiscard]] std::string PresetNames();

}  // namespace kvserve
