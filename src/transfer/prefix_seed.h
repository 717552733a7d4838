// What the keys of a request's frames start from.
#pragma once

#include <string_view>

#include "kvserve/geometry.h"

namespace kvserve {

// The key of a frame is PrefixKey(seed, tokens before its end), that of a whole offer
// PrefixKey(seed, all tokens). The seed is the model's fingerprint, or, with a context, XXH3-128
// over the fingerprint's 16 bytes and the context's: KV of the same tokens in another context
// (adapter, image, salt) has other keys throughout.
[[nodiscard]] Fingerprint PrefixSeed(const Fingerprint& model, std::string_view context);

}  // namespace kvserve
