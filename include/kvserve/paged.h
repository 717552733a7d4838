// KV caches kept in pages: where an engine keeps its blocks, and copies into and out of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "kvserve/view.h"

namespace kvserve {

// One plane (K or V of one layer), axes [block, slot, head, dim], slot being the token's place in
// its block. Strides are in elements and may be anything; `data` is aligned to the element.
struct PagedPlane {
  std::byte* data = nullptr;  // of block 0, slot 0, head 0, dim 0
  std::int64_t block_stride = 0;
  std::int64_t slot_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t dim_stride = 1;
};

struct PagedLayer {
  std::uint32_t group = 0;  // which of a request's block tables is this layer's
  PagedPlane k;
  PagedPlane v;  // no data when the layer has a single plane
};

// The whole cache of one engine rank, in host memory that outlives every use of it.
struct PagedCache {
  KvGeometry geometry;             // of this rank: its own heads
  std::uint32_t block_tokens = 0;  // slots per block, 1..65536
  std::uint32_t blocks = 0;
  std::vector<PagedLayer> layers;  // [layer], as geometry.layers
};

// What the tokens of one request occupy in one group: token t lies in block blocks[t /
// block_tokens], slot t % block_tokens. kNoBlock marks a block that the request does not hold
// (before its window).
using BlockTable = std::vector<std::uint32_t>;
inline constexpr std::uint32_t kNoBlock = UINT32_MAX;

// Memory orders of known engines; [..] is one contiguous tensor.
enum class PagedLayout : std::uint8_t {
  kNhd = 0,      // [2, block, slot, head, dim]: all K, then all V
  kHnd = 1,      // [2, block, head, slot, dim]
  kVllmCpu = 2,  // [block, head, (K: [dim, slot], V: [slot, dim])]: keys transposed in their block
};

// The planes of a layer at `data` in one of these orders, K and V of the same dim for kVllmCpu.
// kInvalidArgument otherwise, and for a null pointer or no blocks.
[[nodiscard]] Result<PagedLayer> LayOutLayer(PagedLayout layout, std::byte* data,
                                             const LayerGeometry& shape, DType dtype,
                                             std::uint32_t blocks, std::uint32_t block_tokens);

// Geometry, layers, strides and null data. kInvalidArgument names the first fault.
[[nodiscard]] Status CheckPagedCache(const PagedCache& cache);

// Copies tokens of a request between its blocks and a view: for each layer of the view, those of
// its tokens that lie in `tokens`. View and cache have the same geometry. Bits are kept. Safe from
// many threads while no block is written that another reads. kInvalidArgument: the view does not
// fit, a table is missing or too short, a block is out of range or kNoBlock; nothing was copied.
[[nodiscard]] Status GatherTokens(const PagedCache& cache, std::span<const BlockTable> tables,
                                  TokenRange tokens, const KvView& out);
[[nodiscard]] Status ScatterTokens(const ConstKvView& in, TokenRange tokens,
                                   std::span<const BlockTable> tables, const PagedCache& cache);

}  // namespace kvserve
