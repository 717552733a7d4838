// Profiles in the JSON of the KVServe paper's public artifact, as short forms of ours.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kvserve/error.h"

namespace kvserve::tool {

struct ImportedProfile {
  std::string text;               // short form
  std::vector<std::string> lost;  // what it does not carry over, in words
};

// Whether the document is one of those: a configuration by components (quantizer_config, ...), a
// row of a table of the search (high_key_max_value, ...), or a list or library of them.
[[nodiscard]] bool IsPublishedProfile(const nlohmann::json& document);

// Of a document that IsPublishedProfile. kInvalidArgument names a key whose value has no
// counterpart here, or says how many profiles there are if not one.
[[nodiscard]] Result<ImportedProfile> ImportPublishedProfile(const nlohmann::json& document);

}  // namespace kvserve::tool
