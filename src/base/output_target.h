// Where a file that is written under a temporary name and then renamed ends up.
#pragma once

#include <string>

#include "kvserve/error.h"

namespace kvserve {

// The file that `path` names in the end, so that the rename replaces a link's target and not the
// link. kInvalidArgument: an empty name, or something that exists and is no regular file (a rename
// over a device or pipe would replace it, /dev/null included).
[[nodiscard]] Result<std::string> ResolveOutputTarget(const std::string& path);

}  // namespace kvserve
