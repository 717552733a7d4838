#include <algorithm>
#include <string>

#include "base/try.h"
#include "kernels/strided_copy/strided_copy.h"
#include "kvserve/paged.h"
#include "paged/check.h"

namespace kvserve {
namespace {

ConstPlaneView AsConst(const PlaneView& plane) {
  return {plane.data, plane.dtype,        plane.device,      plane.tokens,    plane.heads,
          plane.dim,  plane.token_stride, plane.head_stride, plane.dim_stride};
}

ConstKvView AsConst(const KvView& view) {
  ConstKvView result{view.geometry, view.tokens, {}, view.device, view.stream};
  result.layers.reserve(view.layers.size());
  for (const LayerView& layer : view.layers) {
    result.layers.push_back({layer.layer, layer.tokens, AsConst(layer.k), AsConst(layer.v)});
  }
  return result;
}

TokenRange Overlap(TokenRange a, TokenRange b) {
  const std::uint32_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

Status Check(const PagedCache& cache, std::span<const BlockTable> tables, TokenRange tokens,
             const ConstKvView& view) {
  KVSERVE_TRY(CheckBlocks(cache.blocks, cache.block_tokens));
  KVSERVE_TRY(CheckView(view));
  if (view.device != Device::kHost) {
    return MakeError(ErrorCode::kInvalidArgument, "the view is not in host memory");
  }
  if (*view.geometry != cache.geometry || cache.layers.size() != cache.geometry.layers.size()) {
    return MakeError(ErrorCode::kInvalidArgument, "view and cache are of different geometry");
  }
  if (tokens.begin > tokens.end) {
    return MakeError(ErrorCode::kInvalidArgument, "tokens " + std::to_string(tokens.begin) + ".." +
                                                      std::to_string(tokens.end) + " is no range");
  }
  for (const auto& layer : view.layers) {
    KVSERVE_TRY(CheckTable(cache, layer.layer, tables, Overlap(layer.tokens, tokens)));
  }
  return {};
}

// `count` slots of a block, as a plane like `like`.
PlaneView BlockPlane(const PagedPlane& plane, std::uint32_t block, std::uint32_t slot,
                     std::uint32_t count, const ConstPlaneView& like) {
  PlaneView view{plane.data, like.dtype,        Device::kHost,     count,           like.heads,
                 like.dim,   plane.slot_stride, plane.head_stride, plane.dim_stride};
  const std::int64_t first = block * plane.block_stride + slot * plane.slot_stride;
  view.data += first * static_cast<std::int64_t>(DTypeBytes(like.dtype));
  return view;
}

template <typename Byte>
BasicPlaneView<Byte> Rows(BasicPlaneView<Byte> plane, std::uint32_t first, std::uint32_t count) {
  plane.data = plane.at(first, 0, 0);
  plane.tokens = count;
  return plane;
}

// Calls copy(plane of the cache, plane of the layer's view) for the part of `tokens` in each block.
template <typename Byte, typename Copy>
void ForEachBlock(const PagedCache& cache, std::span<const BlockTable> tables, TokenRange tokens,
                  const BasicLayerView<Byte>& layer, const Copy& copy) {
  const TokenRange wanted = Overlap(layer.tokens, tokens);
  const PagedLayer& paged = cache.layers[layer.layer];
  const bool single = cache.geometry.layers[layer.layer].single_plane();
  for (std::uint32_t token = wanted.begin; token < wanted.end;) {
    const std::uint32_t slot = token % cache.block_tokens;
    const std::uint32_t count = std::min(cache.block_tokens - slot, wanted.end - token);
    const std::uint32_t block = tables[paged.group][token / cache.block_tokens];
    const std::uint32_t row = token - layer.tokens.begin;
    const auto copy_plane = [&](const PagedPlane& from, const BasicPlaneView<Byte>& plane) {
      const BasicPlaneView<Byte> rows = Rows(plane, row, count);
      const ConstPlaneView shape{nullptr, plane.dtype, plane.device, count, plane.heads, plane.dim};
      copy(BlockPlane(from, block, slot, count, shape), rows);
    };
    copy_plane(paged.k, layer.k);
    if (!single) copy_plane(paged.v, layer.v);
    token += count;
  }
}

}  // namespace

Status GatherTokens(const PagedCache& cache, std::span<const BlockTable> tables, TokenRange tokens,
                    const KvView& out) {
  KVSERVE_TRY(Check(cache, tables, tokens, AsConst(out)));
  for (const LayerView& layer : out.layers) {
    ForEachBlock(cache, tables, tokens, layer, [](const PlaneView& block, const PlaneView& rows) {
      CopyPlane(AsConst(block), rows);
    });
  }
  return {};
}

Status ScatterTokens(const ConstKvView& in, TokenRange tokens, std::span<const BlockTable> tables,
                     const PagedCache& cache) {
  KVSERVE_TRY(Check(cache, tables, tokens, in));
  for (const ConstLayerView& layer : in.layers) {
    ForEachBlock(
        cache, tables, tokens, layer,
        [](const PlaneView& block, const ConstPlaneView& rows) { CopyPlane(rows, block); });
  }
  return {};
}

}  // namespace kvserve
