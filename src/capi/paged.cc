// Paged caches: layouts, gather and scatter.
#include "kvserve/paged.h"

#include "capi/capi.h"

namespace kvserve::capi {
namespace {

PagedPlane ToPlane(const kvserve_paged_plane& plane) {
  return {static_cast<std::byte*>(plane.data), plane.block_stride, plane.slot_stride,
          plane.head_stride, plane.dim_stride};
}

kvserve_paged_plane FromPlane(const PagedPlane& plane) {
  return {plane.data, plane.block_stride, plane.slot_stride, plane.head_stride, plane.dim_stride};
}

}  // namespace

Result<std::vector<BlockTable>> ToTables(const kvserve_block_table* tables, std::size_t count) {
  if (tables == nullptr && count > 0) {
    return MakeError(ErrorCode::kInvalidArgument, "NULL where there must be block tables");
  }
  std::vector<BlockTable> result;
  for (std::size_t i = 0; i < count; ++i) {
    if (tables[i].blocks == nullptr && tables[i].count > 0) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "block table " + std::to_string(i) + " is NULL");
    }
    result.emplace_back(tables[i].blocks, tables[i].blocks + tables[i].count);
  }
  return result;
}

}  // namespace kvserve::capi

extern "C" {

using namespace kvserve;
using namespace kvserve::capi;

kvserve_status kvserve_lay_out_layer(int32_t layout, void* data, const kvserve_layer* shape,
                                     kvserve_dtype dtype, uint32_t blocks, uint32_t block_tokens,
                                     kvserve_paged_layer* out) {
  return Run([&]() -> Status {
    if (auto status = Need("a shape and a place for the layer", shape, out); !status) return status;
    if (layout < KVSERVE_NHD || layout > KVSERVE_VLLM_CPU || kvserve_dtype_bytes(dtype) == 0) {
      return MakeError(ErrorCode::kInvalidArgument, "layout " + std::to_string(layout) +
                                                        " or dtype id " + std::to_string(dtype) +
                                                        " is unknown");
    }
    const auto layer =
        LayOutLayer(static_cast<PagedLayout>(layout), static_cast<std::byte*>(data),
                    ToLayer(*shape), static_cast<DType>(dtype), blocks, block_tokens);
    if (!layer) return tl::unexpected(layer.error());
    *out = {layer->group, 0, FromPlane(layer->k), FromPlane(layer->v)};
    return {};
  });
}

kvserve_status kvserve_paged_cache_create(const kvserve_geometry* geometry, uint32_t block_tokens,
                                          uint32_t blocks, const kvserve_paged_layer* layers,
                                          size_t layer_count, kvserve_paged_cache** out) {
  return Run([&]() -> Status {
    if (auto status = Need("a geometry, layers and a place for the cache", geometry, layers, out);
        !status) {
      return status;
    }
    if (layer_count != geometry->geometry.layers.size()) {
      return MakeError(ErrorCode::kInvalidArgument,
                       std::to_string(layer_count) + " layers where the geometry has " +
                           std::to_string(geometry->geometry.layers.size()));
    }
    auto cache = std::make_unique<kvserve_paged_cache>();
    cache->cache = {geometry->geometry, block_tokens, blocks, {}};
    for (std::size_t i = 0; i < layer_count; ++i) {
      cache->cache.layers.push_back({layers[i].group, ToPlane(layers[i].k), ToPlane(layers[i].v)});
    }
    if (auto status = CheckPagedCache(cache->cache); !status) return status;
    *out = cache.release();
    return {};
  });
}

void kvserve_paged_cache_destroy(kvserve_paged_cache* cache) {
  delete cache;
}

kvserve_status kvserve_gather(const kvserve_paged_cache* cache, const kvserve_block_table* tables,
                              size_t table_count, uint32_t token_begin, uint32_t token_end,
                              const kvserve_view* out) {
  return Run([&]() -> Status {
    if (auto status = Need("a cache", cache); !status) return status;
    const auto blocks = ToTables(tables, table_count);
    if (!blocks) return tl::unexpected(blocks.error());
    const auto view = ToView(out);
    if (!view) return tl::unexpected(view.error());
    return GatherTokens(cache->cache, *blocks, {token_begin, token_end}, *view);
  });
}

kvserve_status kvserve_scatter(const kvserve_view* in, uint32_t token_begin, uint32_t token_end,
                               const kvserve_block_table* tables, size_t table_count,
                               const kvserve_paged_cache* cache) {
  return Run([&]() -> Status {
    if (auto status = Need("a cache", cache); !status) return status;
    const auto blocks = ToTables(tables, table_count);
    if (!blocks) return tl::unexpected(blocks.error());
    const auto view = ToView(in);
    if (!view) return tl::unexpected(view.error());
    return ScatterTokens(ReadOnly(*view), {token_begin, token_end}, *blocks, cache->cache);
  });
}

}  // extern "C"
