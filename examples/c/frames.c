/* One chunk of KV to a frame and back, from C:
     cc frames.c $(pkg-config --cflags --libs kvserve) -o frames && ./frames */
#include <kvserve/kvserve.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTokens = 256, kLayers = 4, kHeads = 2, kDim = 64, kValues = kTokens * kHeads * kDim };

static float cache[kLayers][2][kTokens][kHeads][kDim]; /* [layer][K, V], as an engine has it */

static void Check(kvserve_status status, const char* what) {
  if (status == KVSERVE_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, kvserve_status_name(status), kvserve_last_error());
  exit(1);
}

static kvserve_geometry* Geometry(void) {
  kvserve_layer layers[kLayers];
  kvserve_geometry* geometry = NULL;
  memset(layers, 0, sizeof layers);
  for (int i = 0; i < kLayers; ++i) {
    layers[i].kv_heads = kHeads;
    layers[i].k_dim = layers[i].v_dim = kDim;
  }
  Check(kvserve_geometry_create(KVSERVE_FLOAT32, layers, kLayers, &geometry), "geometry");
  return geometry;
}

/* Fills the cache with something smooth and points at it. */
static void Layers(kvserve_layer_view* layers) {
  float* values = &cache[0][0][0][0][0];
  for (int i = 0; i < kLayers * 2 * kValues; ++i) {
    values[i] = (float)(i % kDim) * 0.05F - (float)(i / kDim % 7) * 0.3F;
  }
  memset(layers, 0, kLayers * sizeof *layers);
  for (int i = 0; i < kLayers; ++i) {
    const kvserve_plane k = {cache[i][0], kHeads * kDim, kDim, 1};
    const kvserve_plane v = {cache[i][1], kHeads * kDim, kDim, 1};
    layers[i].layer = (uint32_t)i;
    layers[i].token_end = kTokens;
    layers[i].k = k;
    layers[i].v = v;
  }
}

int main(void) {
  kvserve_profile* profile = NULL;
  kvserve_encoder* encoder = NULL;
  kvserve_decoder* decoder = NULL;
  kvserve_buffer* frame = NULL;
  kvserve_chunk* chunk = NULL;
  kvserve_layer_view layers[kLayers];
  kvserve_view view;
  kvserve_view decoded;
  kvserve_geometry* geometry = Geometry();

  Layers(layers);
  memset(&view, 0, sizeof view);
  view.struct_size = sizeof view;
  view.geometry = geometry;
  view.token_end = kTokens;
  view.layers = layers;
  view.layer_count = kLayers;

  Check(kvserve_profile_parse("hadamard|uniform:k_levels=16,v_levels=8|rans", &profile), "profile");
  Check(kvserve_encoder_create(profile, NULL, &encoder), "encoder");
  Check(kvserve_buffer_create(&frame), "buffer");
  Check(kvserve_encoder_encode(encoder, &view, NULL, frame), "encode");

  Check(kvserve_decoder_create(NULL, &decoder), "decoder");
  Check(kvserve_chunk_create(&chunk), "chunk");
  Check(kvserve_decoder_decode(decoder, kvserve_buffer_data(frame), kvserve_buffer_size(frame),
                               NULL, chunk, NULL),
        "decode");
  memset(&decoded, 0, sizeof decoded);
  decoded.struct_size = sizeof decoded;
  Check(kvserve_chunk_view(chunk, &decoded), "view");

  printf("%s, kvserve %s: %zu bytes become %zu; K[0, 0, 1] of layer 0 was %g, is %g\n",
         kvserve_profile_name(profile), kvserve_version(), sizeof cache, kvserve_buffer_size(frame),
         (double)cache[0][0][0][0][1], (double)((const float*)decoded.layers[0].k.data)[1]);

  kvserve_chunk_destroy(chunk);
  kvserve_decoder_destroy(decoder);
  kvserve_buffer_destroy(frame);
  kvserve_encoder_destroy(encoder);
  kvserve_profile_destroy(profile);
  kvserve_geometry_destroy(geometry);
  return 0;
}
