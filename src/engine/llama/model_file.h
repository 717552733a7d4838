// Facts about a GGUF file that need no loaded model.
#pragma once

#include <string>

#include "kvserve/error.h"
#include "kvserve/geometry.h"

namespace kvserve {

// kBadInput when the file cannot be read or does not start as a GGUF does.
[[nodiscard]] Status CheckGguf(const std::string& path);

// Identity of weights and cache type: XXH3-128 over file size, the whole header (metadata,
// vocabulary, tensor table), 256 blocks of 4 KiB spread evenly over the tensor data, and the cache
// type. Reading every byte would take seconds for a large model; two files that differ only between
// the sampled blocks (an edit of single weights) get the same identity, any retrained or
// requantized model does not.
[[nodiscard]] Result<Fingerprint> FingerprintGguf(const std::string& path, DType cache_dtype);

}  // namespace kvserve
