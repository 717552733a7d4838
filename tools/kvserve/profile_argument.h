// The argument of --profile: a short form, a preset, or a JSON file.
#pragma once

#include <string>

#include "kvserve/error.h"
#include "kvserve/profile.h"

namespace kvserve::tool {

// Text with a '/' or the ending ".json" names a file, which is one of
//   {"profile": "hadamard|uniform:k_levels=16|rans"}
//   {"stages": [{"name": "hadamard"}, {"name": "uniform", "parameters": {"k_levels": 16}}, ...]}
// or a profile of the published artifact (published_profile.h), whose counterpart here is then
// named in a line on stderr. Anything else is a short form or a preset. kInvalidArgument says which
// key, stage or value is wrong; kBadInput when the file cannot be read.
[[nodiscard]] Result<Profile> LoadProfile(const std::string& argument);

// Whether LoadProfile reads a file.
[[nodiscard]] bool NamesProfileFile(const std::string& argument);

inline constexpr const char* kProfileHelp =
    "Short form such as 'hadamard|uniform:k_levels=16,v_levels=8|rans', a preset (none, lossless, "
    "published, ...; kvserve stages lists them), or a JSON file";

}  // namespace kvserve::tool
