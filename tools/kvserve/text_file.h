// Texts that models read.
#pragma once

#include <string>

#include "kvserve/error.h"

namespace kvserve::tool {

// Contents of a file of at most 64 MiB. kBadInput, with the path, when there are none or when they
// are no text: a binary file (it has a zero byte) would give a prompt that nobody meant.
[[nodiscard]] Result<std::string> ReadTextFile(const std::string& path);

}  // namespace kvserve::tool
