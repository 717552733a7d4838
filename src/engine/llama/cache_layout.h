// How a model's cache is laid out in sequence states.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/llama/state_blob.h"
#include "kvserve/error.h"
#include "kvserve/geometry.h"

namespace kvserve {

struct CacheLayout {
  KvGeometry geometry;                            // layers in ascending model order
  std::vector<std::vector<std::uint32_t>> slots;  // [cache][slot] -> geometry layer
  std::vector<std::uint32_t> model_layers;        // of each geometry layer, as the model counts
  bool has_values = true;                         // false: single-plane layers only

  [[nodiscard]] std::uint32_t window_tokens(std::size_t cache) const {
    return geometry.layers[slots[cache].front()].window_tokens;
  }
};

// Bytes of one token's row in a plane.
[[nodiscard]] std::uint64_t RowBytes(const KvGeometry& geometry, std::uint32_t layer,
                                     PlaneKind kind);

// kUnsupported unless `state` has this layout's caches, layers, types and row sizes (a cache
// without cells says nothing and passes).
[[nodiscard]] Status CheckState(const SequenceState& state, const CacheLayout& layout);

}  // namespace kvserve
