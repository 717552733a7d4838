// Paged caches of an imaginary engine, and requests in them, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvserve/paged.h"

namespace kvserve::testing {

// A cache with memory of its own, all bytes of it from `seed`. Layers with a window are group 1,
// the others group 0.
class SampleCache {
 public:
  SampleCache(const KvGeometry& geometry, PagedLayout layout, std::uint32_t block_tokens,
              std::uint32_t blocks, unsigned seed = 1);

  [[nodiscard]] const PagedCache& cache() const { return cache_; }
  [[nodiscard]] PagedCache& cache() { return cache_; }
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }

  // Normal values in float16 or float32 instead, of which lossy profiles can take all.
  void FillNormal(unsigned seed);

  // Tables [group] of a request of `tokens` tokens in blocks of this cache, in no order, that no
  // other request of this object has. Window layers hold only blocks of their window; `window` 0:
  // all.
  [[nodiscard]] std::vector<BlockTable> NewTables(std::uint32_t tokens, std::uint32_t window = 0);

 private:
  [[nodiscard]] BlockTable NewTable(std::uint32_t first_block, std::uint32_t end_block);

  PagedCache cache_;
  std::vector<std::byte> bytes_;
  std::vector<std::uint32_t> free_;
};

[[nodiscard]] KvGeometry Geometry(DType dtype, std::vector<LayerGeometry> layers);

// The tokens of all layers in [layer, plane, token, head, dim] order, window layers as they are
// held when the request ends at `total`.
[[nodiscard]] std::vector<std::byte> ReadTokens(const PagedCache& cache,
                                                const std::vector<BlockTable>& tables,
                                                TokenRange tokens, std::uint32_t total);

// Every address that the tokens of one request occupy, byte by byte, in the order of ReadTokens.
[[nodiscard]] std::vector<const std::byte*> Places(const PagedCache& cache,
                                                   const std::vector<BlockTable>& tables,
                                                   TokenRange tokens, std::uint32_t total);

}  // namespace kvserve::testing
