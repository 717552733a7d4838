#include "engine/llama/cache_layout.h"

#include <string>

#include "base/try.h"

namespace kvserve {
namespace {

tl::unexpected<Error> Unsupported(const std::string& what) {
  return MakeError(ErrorCode::kUnsupported, "cache layout: " + what);
}

Status CheckRows(const StateRows& rows, const CacheLayout& layout, std::uint32_t layer,
                 PlaneKind kind) {
  const std::uint64_t row_bytes = RowBytes(layout.geometry, layer, kind);
  if (rows.dtype == layout.geometry.dtype && rows.row_bytes == row_bytes) return {};
  return Unsupported(
      "layer " + std::to_string(layer) + " has rows of " + std::to_string(rows.row_bytes) +
      " bytes of " + std::string(DTypeName(rows.dtype)) + ", expected " +
      std::to_string(row_bytes) + " of " + std::string(DTypeName(layout.geometry.dtype)));
}

}  // namespace

std::uint64_t RowBytes(const KvGeometry& geometry, std::uint32_t layer, PlaneKind kind) {
  const LayerGeometry& shape = geometry.layers[layer];
  const std::uint32_t dim = kind == PlaneKind::kKey ? shape.k_dim : shape.v_dim;
  return std::uint64_t{shape.kv_heads} * dim * DTypeBytes(geometry.dtype);
}

Status CheckState(const SequenceState& state, const CacheLayout& layout) {
  if (state.caches.size() != layout.slots.size()) {
    return Unsupported(std::to_string(state.caches.size()) + " caches, expected " +
                       std::to_string(layout.slots.size()));
  }
  for (std::size_t c = 0; c < state.caches.size(); ++c) {
    const StateCache& cache = state.caches[c];
    const auto& slots = layout.slots[c];
    if (cache.positions.empty()) continue;
    if (cache.keys.size() != slots.size() ||
        cache.values.size() != (layout.has_values ? slots.size() : 0)) {
      return Unsupported("cache " + std::to_string(c) + " has " +
                         std::to_string(cache.keys.size()) + " layers, expected " +
                         std::to_string(slots.size()));
    }
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      KVSERVE_TRY(CheckRows(cache.keys[slot], layout, slots[slot], PlaneKind::kKey));
      if (!layout.has_values) continue;
      KVSERVE_TRY(CheckRows(cache.values[slot], layout, slots[slot], PlaneKind::kValue));
    }
  }
  return {};
}

}  // namespace kvserve
