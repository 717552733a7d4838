#include "paged/testing/paged_sample.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "base/half.h"

namespace kvserve::testing {

SampleCache::SampleCache(const KvGeometry& geometry, PagedLayout layout, std::uint32_t block_tokens,
                         std::uint32_t blocks, unsigned seed) {
  std::mt19937 random(seed);
  std::size_t total = 0;
  std::vector<std::size_t> starts;
  for (const LayerGeometry& layer : geometry.layers) {
    starts.push_back(total);
    total += LayerBytes(layer, geometry.dtype, std::uint64_t{blocks} * block_tokens) + 64;
    total -= total % 64;
  }
  bytes_.resize(total);
  for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
  cache_ = {geometry, block_tokens, blocks, {}};
  for (std::size_t i = 0; i < geometry.layers.size(); ++i) {
    auto layer = LayOutLayer(layout, bytes_.data() + starts[i], geometry.layers[i], geometry.dtype,
                             blocks, block_tokens)
                     .value();
    layer.group = geometry.layers[i].window_tokens == 0 ? 0 : 1;
    cache_.layers.push_back(layer);
  }
  for (std::uint32_t i = 0; i < blocks; ++i) free_.push_back(i);
  std::shuffle(free_.begin(), free_.end(), random);
}

void SampleCache::FillNormal(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const std::size_t size = DTypeBytes(cache_.geometry.dtype);
  for (std::size_t at = 0; at + size <= bytes_.size(); at += size) {
    const float value = normal(random);
    const std::uint16_t half = FloatToFloat16(value);
    std::memcpy(&bytes_[at], size == 2 ? static_cast<const void*>(&half) : &value, size);
  }
}

BlockTable SampleCache::NewTable(std::uint32_t first_block, std::uint32_t end_block) {
  BlockTable table(end_block, kNoBlock);
  for (std::uint32_t i = first_block; i < end_block; ++i) {
    table[i] = free_.at(free_.size() - 1);
    free_.pop_back();
  }
  return table;
}

std::vector<BlockTable> SampleCache::NewTables(std::uint32_t tokens, std::uint32_t window) {
  const std::uint32_t slots = cache_.block_tokens;
  const std::uint32_t end = (tokens + slots - 1) / slots;
  std::vector<BlockTable> tables = {NewTable(0, end)};
  const bool windows = std::any_of(cache_.layers.begin(), cache_.layers.end(),
                                   [](const PagedLayer& layer) { return layer.group == 1; });
  if (!windows) return tables;
  const std::uint32_t first = window == 0 || window >= tokens ? 0 : (tokens - window) / slots;
  tables.push_back(NewTable(first, end));
  return tables;
}

KvGeometry Geometry(DType dtype, std::vector<LayerGeometry> layers) {
  KvGeometry geometry;
  geometry.dtype = dtype;
  geometry.layers = std::move(layers);
  return geometry;
}

// By the definition of a paged plane, element by element.
std::vector<const std::byte*> Places(const PagedCache& cache, const std::vector<BlockTable>& tables,
                                     TokenRange tokens, std::uint32_t total) {
  std::vector<const std::byte*> places;
  const auto size = static_cast<std::int64_t>(DTypeBytes(cache.geometry.dtype));
  for (std::size_t i = 0; i < cache.layers.size(); ++i) {
    const LayerGeometry& shape = cache.geometry.layers[i];
    const TokenRange held = TokensHeld(shape, tokens, total);
    const auto add_plane = [&](const PagedPlane& plane, std::uint32_t dim) {
      for (std::uint32_t t = held.begin; t < held.end; ++t) {
        const std::int64_t block = tables.at(cache.layers[i].group).at(t / cache.block_tokens);
        const std::int64_t slot = t % cache.block_tokens;
        for (std::int64_t h = 0; h < shape.kv_heads; ++h) {
          for (std::int64_t d = 0; d < dim; ++d) {
            const std::int64_t element = block * plane.block_stride + slot * plane.slot_stride +
                                         h * plane.head_stride + d * plane.dim_stride;
            for (std::int64_t b = 0; b < size; ++b)
              places.push_back(plane.data + element * size + b);
          }
        }
      }
    };
    add_plane(cache.layers[i].k, shape.k_dim);
    if (!shape.single_plane()) add_plane(cache.layers[i].v, shape.v_dim);
  }
  return places;
}

std::vector<std::byte> ReadTokens(const PagedCache& cache, const std::vector<BlockTable>& tables,
                                  TokenRange tokens, std::uint32_t total) {
  std::vector<std::byte> bytes;
  for (const std::byte* place : Places(cache, tables, tokens, total)) bytes.push_back(*place);
  return bytes;
}

}  // namespace kvserve::testing
