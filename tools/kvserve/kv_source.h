// KV from either kind of file, as one buffer.
#pragma once

#include <string>

#include "kvserve/codec.h"
#include "kvserve/error.h"
#include "kvserve/view.h"

namespace kvserve::tool {

// Whether a file starts as safetensors do, whatever its name; kBadInput if it cannot be read.
[[nodiscard]] Result<bool> IsSafetensors(const std::string& path);

// Reads a safetensors KV file, or decodes a file of frames: which of the two follows from the
// bytes, not from the name. Errors as the readers', with the path in front.
[[nodiscard]] Status LoadKv(const std::string& path, const CodecOptions& codec, KvBuffer& out);

}  // namespace kvserve::tool
