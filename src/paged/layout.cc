#include <string>

#include "base/try.h"
#include "kvserve/paged.h"
#include "paged/check.h"

namespace kvserve {
namespace {

// One tensor [block, slot, head, dim] or [block, head, slot, dim].
PagedPlane OnePlane(std::byte* data, bool heads_outside, std::int64_t heads, std::int64_t slots,
                    std::int64_t dim) {
  PagedPlane plane{data, slots * heads * dim};
  plane.slot_stride = heads_outside ? dim : heads * dim;
  plane.head_stride = heads_outside ? slots * dim : dim;
  return plane;
}

}  // namespace

Result<PagedLayer> LayOutLayer(PagedLayout layout, std::byte* data, const LayerGeometry& shape,
                               DType dtype, std::uint32_t blocks, std::uint32_t block_tokens) {
  KVSERVE_TRY(CheckLayerGeometry(shape, 0));
  KVSERVE_TRY(CheckDTypeSupported(dtype));
  KVSERVE_TRY(CheckBlocks(blocks, block_tokens));
  if (data == nullptr) return MakeError(ErrorCode::kInvalidArgument, "the cache has no data");
  const std::int64_t heads = shape.kv_heads;
  const std::int64_t slots = block_tokens;
  const auto bytes = static_cast<std::int64_t>(DTypeBytes(dtype));
  PagedLayer layer;
  switch (layout) {
    case PagedLayout::kNhd:
    case PagedLayout::kHnd: {
      const bool heads_outside = layout == PagedLayout::kHnd;
      layer.k = OnePlane(data, heads_outside, heads, slots, shape.k_dim);
      if (shape.single_plane()) return layer;
      std::byte* values = data + blocks * layer.k.block_stride * bytes;
      layer.v = OnePlane(values, heads_outside, heads, slots, shape.v_dim);
      return layer;
    }
    case PagedLayout::kVllmCpu: {
      if (shape.v_dim != shape.k_dim) {
        return MakeError(ErrorCode::kInvalidArgument,
                         "keys transposed in their block need values of the same dim: k_dim " +
                             std::to_string(shape.k_dim) + ", v_dim " +
                             std::to_string(shape.v_dim));
      }
      const std::int64_t dim = shape.k_dim;
      const std::int64_t head = 2 * slots * dim;
      layer.k = {data, heads * head, 1, head, slots};
      layer.v = {data + slots * dim * bytes, heads * head, dim, head, 1};
      return layer;
    }
  }
  return MakeError(ErrorCode::kInvalidArgument,
                   "memory order " + std::to_string(static_cast<int>(layout)) + " is unknown");
}

}  // namespace kvserve
