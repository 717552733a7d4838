/* Paged caches through the C ABI. */
#include <kvserve/kvserve.h>
#include <string.h>

#include "check.h"

enum { kBlocks = 5, kSlots = 4, kHeads = 2, kDim = 8, kTokens = 10 };

/* [block, head, (K: [dim, slot], V: [slot, dim])] */
static uint16_t cache_memory[kBlocks][kHeads][2][kDim * kSlots];
static uint16_t k_plane[kTokens][kHeads][kDim];
static uint16_t v_plane[kTokens][kHeads][kDim];

static kvserve_layer_view Layer(void) {
  kvserve_layer_view layer;
  memset(&layer, 0, sizeof layer);
  layer.token_end = kTokens;
  layer.k.data = k_plane;
  layer.v.data = v_plane;
  layer.k.token_stride = layer.v.token_stride = kHeads * kDim;
  layer.k.head_stride = layer.v.head_stride = kDim;
  layer.k.dim_stride = layer.v.dim_stride = 1;
  return layer;
}

int main(void) {
  const kvserve_layer shape = {kHeads, kDim, kDim, 0, KVSERVE_ROPE_NONE, 0.0F};
  const uint32_t blocks[] = {3, 0, 4};
  const kvserve_block_table table = {blocks, 3};
  const kvserve_block_table shorter = {blocks, 2};
  kvserve_geometry* geometry = NULL;
  kvserve_paged_layer paged;
  kvserve_paged_cache* cache = NULL;
  kvserve_layer_view layer = Layer();
  kvserve_view view;

  CHECK_OK(kvserve_geometry_create(KVSERVE_FLOAT16, &shape, 1, &geometry));
  CHECK_OK(kvserve_lay_out_layer(KVSERVE_VLLM_CPU, cache_memory, &shape, KVSERVE_FLOAT16, kBlocks,
                                 kSlots, &paged));
  CHECK(paged.k.slot_stride == 1 && paged.k.dim_stride == kSlots && paged.v.dim_stride == 1);
  CHECK_OK(kvserve_paged_cache_create(geometry, kSlots, kBlocks, &paged, 1, &cache));

  memset(&view, 0, sizeof view);
  view.struct_size = sizeof view;
  view.geometry = geometry;
  view.token_end = kTokens;
  view.layers = &layer;
  view.layer_count = 1;
  for (int t = 0; t < kTokens; ++t) {
    for (int i = 0; i < kHeads * kDim; ++i) {
      k_plane[t][i / kDim][i % kDim] = (uint16_t)(100 * t + i);
      v_plane[t][i / kDim][i % kDim] = (uint16_t)(5000 + 100 * t + i);
    }
  }
  CHECK_OK(kvserve_scatter(&view, 0, kTokens, &table, 1, cache));
  /* Token 6 is in slot 2 of the second block, which is block 0. */
  CHECK(cache_memory[0][1][0][3 * kSlots + 2] == 100 * 6 + kDim + 3);
  CHECK(cache_memory[0][1][1][2 * kDim + 3] == 5000 + 100 * 6 + kDim + 3);

  memset(k_plane, 0, sizeof k_plane);
  CHECK_OK(kvserve_gather(cache, &table, 1, 2, 9, &view));
  CHECK(k_plane[1][0][0] == 0 && k_plane[9][0][0] == 0);
  CHECK(k_plane[2][1][7] == 100 * 2 + 15 && k_plane[8][0][0] == 100 * 8);

  CHECK(kvserve_gather(cache, &shorter, 1, 0, kTokens, &view) == KVSERVE_INVALID_ARGUMENT);
  CHECK(kvserve_gather(cache, NULL, 1, 0, kTokens, &view) == KVSERVE_INVALID_ARGUMENT);
  CHECK(kvserve_gather(NULL, &table, 1, 0, kTokens, &view) == KVSERVE_INVALID_ARGUMENT);
  CHECK(kvserve_lay_out_layer(7, cache_memory, &shape, KVSERVE_FLOAT16, kBlocks, kSlots, &paged) ==
        KVSERVE_INVALID_ARGUMENT);

  kvserve_paged_cache_destroy(cache);
  kvserve_geometry_destroy(geometry);
  return CheckResult();
}
