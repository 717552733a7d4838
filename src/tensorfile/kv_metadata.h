// The string map of a KV file: kv_file.h lists the keys.
#pragma once

#include "kvserve/error.h"
#include "tensorfile/kv_file.h"
#include "tensorfile/safetensors.h"

namespace kvserve {

[[nodiscard]] StringMap FormatKvMetadata(const KvFileInfo& info);

// Completes `info`, whose geometry has the shapes and whose layer_tokens are [0, shape's tokens).
// An unknown key that starts with "kvserve." is refused; others are not ours. kBadInput names the
// key.
[[nodiscard]] Status ApplyKvMetadata(const StringMap& metadata, KvFileInfo& info);

}  // namespace kvserve
