// KV from either kind of file, as one buffer.
#pragma once

#include <string>

#include "kvserve/error.h"
#include "kvserve/view.h"

namespace kvserve::tool {

// Reads a safetensors KV file, or decodes a file of frames: which of the two follows from the
// bytes, not from the name. Errors as the readers', with the path in front.
[[nodiscard]] Status LoadKv(const std::string& path, KvBuffer& out);

}  // namespace kvserve::tool
