#include "paged/check.h"

#include <cstdint>
#include <string>

#include "base/checked.h"
#include "base/try.h"

namespace kvserve {
namespace {

tl::unexpected<Error> Fault(const std::string& what) {
  return MakeError(ErrorCode::kInvalidArgument, what);
}

// Whether the farthest element of a plane, either way, has an offset in bytes that fits.
bool StridesFit(const PagedPlane& plane, std::uint32_t blocks, std::uint32_t slots,
                std::uint32_t heads, std::uint32_t dim, std::uint64_t element_bytes) {
  constexpr std::uint64_t kMost = INT64_MAX;
  std::uint64_t reach = 0;
  const auto add = [&](std::uint32_t count, std::int64_t stride) {
    const std::uint64_t step =
        stride < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(stride) : stride;
    const auto part = CheckedMul(count - 1, step);
    const auto sum = part ? CheckedAdd(reach, *part) : std::nullopt;
    reach = sum.value_or(UINT64_MAX);
    return sum.has_value();
  };
  if (!add(blocks, plane.block_stride) || !add(slots, plane.slot_stride) ||
      !add(heads, plane.head_stride) || !add(dim, plane.dim_stride)) {
    return false;
  }
  const auto bytes = CheckedMul(reach, element_bytes);
  return bytes.has_value() && *bytes < kMost;
}

Status CheckPlane(const PagedCache& cache, std::size_t index, const char* name,
                  const PagedPlane& plane, std::uint32_t dim) {
  const std::string where = "layer " + std::to_string(index) + " " + name + ": ";
  const std::size_t bytes = DTypeBytes(cache.geometry.dtype);
  if (plane.data == nullptr) return Fault(where + "no data");
  if (reinterpret_cast<std::uintptr_t>(plane.data) % bytes != 0) {
    return Fault(where + "data is not aligned to its elements");
  }
  const LayerGeometry& shape = cache.geometry.layers[index];
  if (!StridesFit(plane, cache.blocks, cache.block_tokens, shape.kv_heads, dim, bytes)) {
    return Fault(where + "strides lead out of the address space");
  }
  return {};
}

}  // namespace

Status CheckBlocks(std::uint32_t blocks, std::uint32_t block_tokens) {
  if (blocks == 0 || blocks >= kNoBlock) {
    return Fault("blocks " + std::to_string(blocks) + " is outside 1.." +
                 std::to_string(kNoBlock - 1));
  }
  if (block_tokens == 0 || block_tokens > kMaxBlockTokens) {
    return Fault("block_tokens " + std::to_string(block_tokens) + " is outside 1.." +
                 std::to_string(kMaxBlockTokens));
  }
  return {};
}

Status CheckPagedCache(const PagedCache& cache) {
  KVSERVE_TRY(CheckGeometry(cache.geometry));
  KVSERVE_TRY(CheckBlocks(cache.blocks, cache.block_tokens));
  if (cache.layers.size() != cache.geometry.layers.size()) {
    return Fault("the cache has " + std::to_string(cache.layers.size()) + " layers, its geometry " +
                 std::to_string(cache.geometry.layers.size()));
  }
  for (std::size_t i = 0; i < cache.layers.size(); ++i) {
    const LayerGeometry& shape = cache.geometry.layers[i];
    KVSERVE_TRY(CheckPlane(cache, i, "K", cache.layers[i].k, shape.k_dim));
    if (shape.single_plane()) continue;
    KVSERVE_TRY(CheckPlane(cache, i, "V", cache.layers[i].v, shape.v_dim));
  }
  return {};
}

Status CheckTable(const PagedCache& cache, std::uint32_t layer, std::span<const BlockTable> tables,
                  TokenRange tokens) {
  if (tokens.empty()) return {};
  const std::uint32_t group = cache.layers[layer].group;
  const auto where = [&] {
    return "layer " + std::to_string(layer) + ", group " + std::to_string(group) + ": ";
  };
  if (group >= tables.size()) {
    return Fault(where() + "there are block tables for " + std::to_string(tables.size()) +
                 " groups");
  }
  const BlockTable& table = tables[group];
  const std::size_t last = (tokens.end - 1) / cache.block_tokens;
  if (last >= table.size()) {
    return Fault(where() + "token " + std::to_string(tokens.end - 1) + " is in block " +
                 std::to_string(last) + " of a table of " + std::to_string(table.size()));
  }
  for (std::size_t i = tokens.begin / cache.block_tokens; i <= last; ++i) {
    if (table[i] < cache.blocks) continue;
    return Fault(where() + "block " + std::to_string(i) + " is " +
                 (table[i] == kNoBlock ? "not held"
                                       : std::to_string(table[i]) + " of a cache of " +
                                             std::to_string(cache.blocks)));
  }
  return {};
}

}  // namespace kvserve
