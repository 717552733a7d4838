// Which heads look far back: from mean queries and keys alone, without training and without running
// attention. docs/CALIBRATION.md, "Head scores".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvserve/geometry.h"

namespace kvserve {

// Of one text of `tokens` tokens, 1 or more: `mean_queries` [head, dim] and `mean_keys`
// [kv_head, dim], both before RoPE; `layer` has a known rotation. A window layer sees the last
// window_tokens of the text. [kv_head], 0..1. O(tokens * heads * dim).
[[nodiscard]] std::vector<double> HeadScores(const LayerGeometry& layer,
                                             std::span<const float> mean_queries,
                                             std::span<const float> mean_keys,
                                             std::uint32_t tokens);

}  // namespace kvserve
