// A layer's shape in JSON documents.
#pragma once

#include <nlohmann/json.hpp>

#include "kvserve/geometry.h"

namespace kvserve::tool {

// kv_heads, k_dim, v_dim, window_tokens, rope_style ("none", "interleaved", "halves"), rope_theta.
[[nodiscard]] nlohmann::json LayerJson(const LayerGeometry& layer);

}  // namespace kvserve::tool
