/* The C ABI from C: what a program without C++ may rely on. */
#include <kvserve/kvserve.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { kTokens = 37, kHeads = 3, kDim = 8, kValues = kTokens * kHeads * kDim };

static uint16_t k_plane[kValues]; /* [head, dim, token]: keys transposed */
static uint16_t v_plane[kValues]; /* [token, head, dim] */

static kvserve_geometry* Geometry(void) {
  const kvserve_layer layer = {kHeads, kDim, kDim, 0, KVSERVE_ROPE_HALVES, 10000.0F};
  kvserve_geometry* geometry = NULL;
  CHECK_OK(kvserve_geometry_create(KVSERVE_BFLOAT16, &layer, 1, &geometry));
  return geometry;
}

static kvserve_layer_view Layer(void) {
  kvserve_layer_view layer;
  memset(&layer, 0, sizeof layer);
  layer.token_begin = 100;
  layer.token_end = 100 + kTokens;
  layer.k.data = k_plane;
  layer.k.token_stride = 1;
  layer.k.dim_stride = kTokens;
  layer.k.head_stride = kTokens * kDim;
  layer.v.data = v_plane;
  layer.v.token_stride = kHeads * kDim;
  layer.v.head_stride = kDim;
  layer.v.dim_stride = 1;
  return layer;
}

static kvserve_view View(const kvserve_geometry* geometry, const kvserve_layer_view* layer) {
  kvserve_view view;
  memset(&view, 0, sizeof view);
  view.struct_size = sizeof view;
  view.geometry = geometry;
  view.token_begin = layer->token_begin;
  view.token_end = layer->token_end;
  view.layers = layer;
  view.layer_count = 1;
  return view;
}

static kvserve_encoder* Encoder(const char* text, uint32_t threads) {
  kvserve_codec_options options;
  kvserve_profile* profile = NULL;
  kvserve_encoder* encoder = NULL;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.threads = threads;
  CHECK_OK(kvserve_profile_parse(text, &profile));
  CHECK_OK(kvserve_encoder_create(profile, &options, &encoder));
  kvserve_profile_destroy(profile);
  return encoder;
}

static void Fill(void) {
  for (int i = 0; i < kValues; ++i) {
    k_plane[i] = (uint16_t)(0x3f80 + i * 5 % 97);
    v_plane[i] = (uint16_t)(0xbf00 + i * 3 % 89);
  }
}

static void TestVersions(void) {
  CHECK(kvserve_abi_version() == KVSERVE_ABI_VERSION);
  CHECK(strchr(kvserve_version(), '.') != NULL);
  CHECK(strcmp(kvserve_status_name(KVSERVE_OK), "ok") == 0);
  CHECK(strcmp(kvserve_status_name(KVSERVE_CORRUPT_DATA), "corrupt_data") == 0);
  CHECK(kvserve_dtype_bytes(KVSERVE_FLOAT32) == 4);
  CHECK(kvserve_dtype_bytes(KVSERVE_FLOAT8_E5M2) == 1);
  CHECK(kvserve_dtype_bytes(0) == 0 && kvserve_dtype_bytes(-1) == 0);
  CHECK(kvserve_dtype_bytes(257) == 0);
}

static void TestProfiles(void) {
  kvserve_profile* profile = NULL;
  CHECK_OK(kvserve_profile_parse("uniform:levels=16|rans", &profile));
  CHECK(kvserve_profile_is_lossless(profile) == 0);
  CHECK(kvserve_profile_needs_calibration(profile) == 0);
  kvserve_profile_destroy(profile);
  CHECK_OK(kvserve_profile_parse("lossless", &profile));
  CHECK(strcmp(kvserve_profile_name(profile), "lossless") == 0);
  CHECK(kvserve_profile_is_lossless(profile) == 1);
  kvserve_profile_destroy(profile);
  CHECK_OK(kvserve_profile_parse("uniform|rans:tables=calibrated", &profile));
  CHECK(kvserve_profile_needs_calibration(profile) == 1);
  kvserve_profile_destroy(profile);
  CHECK(kvserve_profile_parse("nonsense", &profile) == KVSERVE_INVALID_ARGUMENT);
  CHECK(strstr(kvserve_last_error(), "nonsense") != NULL);
}

static void TestRoundTrip(const char* profile, uint32_t threads) {
  static uint16_t k_back[kValues];
  static uint16_t v_back[kValues];
  kvserve_geometry* geometry = Geometry();
  kvserve_layer_view layer = Layer();
  kvserve_view view = View(geometry, &layer);
  kvserve_view decoded;
  kvserve_encoder* encoder = Encoder(profile, threads);
  kvserve_decoder* decoder = NULL;
  kvserve_buffer* frame = NULL;
  kvserve_chunk* chunk = NULL;
  size_t frame_bytes = 0;
  Fill();
  CHECK_OK(kvserve_buffer_create(&frame));
  CHECK_OK(kvserve_encoder_encode(encoder, &view, NULL, frame));
  CHECK_OK(kvserve_decoder_create(NULL, &decoder));
  CHECK_OK(kvserve_chunk_create(&chunk));
  CHECK_OK(kvserve_decoder_decode(decoder, kvserve_buffer_data(frame), kvserve_buffer_size(frame),
                                  NULL, chunk, &frame_bytes));
  CHECK(frame_bytes == kvserve_buffer_size(frame));

  memset(&decoded, 0, sizeof decoded);
  decoded.struct_size = sizeof decoded;
  CHECK_OK(kvserve_chunk_view(chunk, &decoded));
  CHECK(decoded.token_begin == 100 && decoded.token_end == 100 + kTokens);
  CHECK(decoded.layer_count == 1 && decoded.layers[0].v.dim_stride == 1);
  CHECK(kvserve_geometry_dtype(decoded.geometry) == KVSERVE_BFLOAT16);
  CHECK(memcmp(decoded.layers[0].v.data, v_plane, sizeof v_plane) == 0);

  layer.k.data = k_back;
  layer.v.data = v_back;
  CHECK_OK(kvserve_chunk_copy_to(chunk, &view));
  CHECK(memcmp(k_back, k_plane, sizeof k_plane) == 0);
  CHECK(memcmp(v_back, v_plane, sizeof v_plane) == 0);

  /* A damaged frame is refused, and the chunk is empty then. */
  CHECK(kvserve_decoder_decode(decoder, kvserve_buffer_data(frame), frame_bytes - 1, NULL, chunk,
                               NULL) == KVSERVE_CORRUPT_DATA);
  CHECK_OK(kvserve_chunk_view(chunk, &decoded));
  CHECK(decoded.layer_count == 0);
  CHECK(kvserve_chunk_copy_to(chunk, &view) == KVSERVE_INVALID_ARGUMENT);

  kvserve_chunk_destroy(chunk);
  kvserve_decoder_destroy(decoder);
  kvserve_buffer_destroy(frame);
  kvserve_encoder_destroy(encoder);
  kvserve_geometry_destroy(geometry);
}

static void TestFingerprints(void) {
  const int32_t tokens[] = {1, 2, 3};
  kvserve_fingerprint model = {{7}};
  kvserve_geometry* geometry = Geometry();
  const kvserve_layer_view layer = Layer();
  const kvserve_view view = View(geometry, &layer);
  kvserve_encoder* encoder = Encoder("none", 0);
  kvserve_decoder* decoder = NULL;
  kvserve_buffer* frame = NULL;
  kvserve_chunk* chunk = NULL;
  kvserve_encode_options encode;
  kvserve_decode_options decode;
  memset(&encode, 0, sizeof encode);
  encode.struct_size = sizeof encode;
  encode.model = model;
  CHECK_OK(kvserve_prefix_key(&model, tokens, 3, &encode.key));
  CHECK_OK(kvserve_buffer_create(&frame));
  CHECK_OK(kvserve_encoder_encode(encoder, &view, &encode, frame));
  memset(&decode, 0, sizeof decode);
  decode.struct_size = sizeof decode;
  decode.model = model;
  decode.key = encode.key;
  CHECK_OK(kvserve_decoder_create(NULL, &decoder));
  CHECK_OK(kvserve_chunk_create(&chunk));
  CHECK_OK(kvserve_decoder_decode(decoder, kvserve_buffer_data(frame), kvserve_buffer_size(frame),
                                  &decode, chunk, NULL));
  decode.model.bytes[0] = 8;
  CHECK(kvserve_decoder_decode(decoder, kvserve_buffer_data(frame), kvserve_buffer_size(frame),
                               &decode, chunk, NULL) == KVSERVE_MISMATCH);
  decode.model = model;
  decode.max_raw_bytes = 100;
  CHECK(kvserve_decoder_decode(decoder, kvserve_buffer_data(frame), kvserve_buffer_size(frame),
                               &decode, chunk, NULL) == KVSERVE_RESOURCE_EXHAUSTED);
  kvserve_chunk_destroy(chunk);
  kvserve_decoder_destroy(decoder);
  kvserve_buffer_destroy(frame);
  kvserve_encoder_destroy(encoder);
  kvserve_geometry_destroy(geometry);
}

/* What a frame leaves out: here all between 2 sinks and the last 5 tokens. The chunk's tokens begin
   at 100, so that it has no sinks. */
static void TestDroppedTokens(void) {
  kvserve_geometry* geometry = Geometry();
  const kvserve_layer_view layer = Layer();
  const kvserve_view view = View(geometry, &layer);
  kvserve_encoder* encoder = Encoder("window:sinks=2,recent=5,outside=0|mixed|rans", 1);
  kvserve_profile* profile = NULL;
  kvserve_decoder* decoder = NULL;
  kvserve_buffer* frame = NULL;
  kvserve_chunk* chunk = NULL;
  const uint8_t* dropped = NULL;
  size_t count = 1;
  size_t i;
  CHECK_OK(kvserve_profile_parse("window:outside=0|mixed|rans", &profile));
  CHECK(strcmp(kvserve_profile_may_drop(profile), "window") == 0);
  kvserve_profile_destroy(profile);
  CHECK_OK(kvserve_profile_parse("uniform|rans", &profile));
  CHECK(strcmp(kvserve_profile_may_drop(profile), "") == 0);
  kvserve_profile_destroy(profile);
  CHECK(strcmp(kvserve_profile_may_drop(NULL), "") == 0);

  CHECK_OK(kvserve_decoder_create(NULL, &decoder));
  CHECK_OK(kvserve_decoder_dropped(decoder, &dropped, &count));
  CHECK(count == 0);
  CHECK(kvserve_decoder_dropped(NULL, &dropped, &count) == KVSERVE_INVALID_ARGUMENT);
  CHECK_OK(kvserve_buffer_create(&frame));
  CHECK_OK(kvserve_encoder_encode(encoder, &view, NULL, frame));
  CHECK_OK(kvserve_chunk_create(&chunk));
  CHECK_OK(kvserve_decoder_decode(decoder, kvserve_buffer_data(frame), kvserve_buffer_size(frame),
                                  NULL, chunk, NULL));
  CHECK_OK(kvserve_decoder_dropped(decoder, &dropped, &count));
  CHECK(count == kTokens);
  for (i = 0; i < count; ++i) CHECK(dropped[i] == (i < kTokens - 5 ? 1 : 0));
  CHECK(kvserve_decoder_partly_dropped(decoder) == 0);
  kvserve_chunk_destroy(chunk);
  kvserve_decoder_destroy(decoder);
  kvserve_buffer_destroy(frame);
  kvserve_encoder_destroy(encoder);
  kvserve_geometry_destroy(geometry);
}

/* Frames of one request; what is remembered of it serves encoders of its own profile alone. */
static void TestRequests(void) {
  kvserve_geometry* geometry = Geometry();
  const kvserve_layer_view layer = Layer();
  const kvserve_view view = View(geometry, &layer);
  kvserve_encoder* encoder = Encoder("window|mixed|rans", 1);
  kvserve_encoder* other = Encoder("none", 1);
  kvserve_request* request = NULL;
  kvserve_buffer* frame = NULL;
  kvserve_encode_options encode;
  Fill();
  CHECK_OK(kvserve_request_create(encoder, &request));
  CHECK(kvserve_request_create(NULL, &request) == KVSERVE_INVALID_ARGUMENT);
  CHECK_OK(kvserve_buffer_create(&frame));
  memset(&encode, 0, sizeof encode);
  encode.struct_size = sizeof encode;
  encode.request = request;
  CHECK(strcmp(kvserve_encoder_fallback_reason(encoder), "") == 0);
  CHECK(strcmp(kvserve_encoder_fallback_reason(NULL), "") == 0);
  CHECK_OK(kvserve_encoder_encode(encoder, &view, &encode, frame));
  CHECK(kvserve_encoder_encode(other, &view, &encode, frame) == KVSERVE_INVALID_ARGUMENT);
  encode.struct_size = offsetof(kvserve_encode_options, request); /* an older caller */
  CHECK_OK(kvserve_encoder_encode(other, &view, &encode, frame));
  kvserve_buffer_destroy(frame);
  kvserve_request_destroy(request);
  kvserve_request_destroy(NULL);
  kvserve_encoder_destroy(other);
  kvserve_encoder_destroy(encoder);
  kvserve_geometry_destroy(geometry);
}

/* A caller from the future has more fields, one that forgot struct_size has none. */
static void TestStructSizes(void) {
  struct {
    kvserve_codec_options known;
    uint64_t later;
  } future = {{0}, 42};
  kvserve_codec_options none;
  kvserve_decoder* decoder = NULL;
  future.known.struct_size = sizeof future;
  CHECK_OK(kvserve_decoder_create(&future.known, &decoder));
  kvserve_decoder_destroy(decoder);
  memset(&none, 0, sizeof none);
  CHECK(kvserve_decoder_create(&none, &decoder) == KVSERVE_INVALID_ARGUMENT);
  CHECK(strstr(kvserve_last_error(), "struct_size") != NULL);
}

static void TestWrongUsage(void) {
  const kvserve_layer odd = {kHeads, kDim, kDim, 0, 3, 0.0F};
  kvserve_geometry* geometry = NULL;
  kvserve_layer_view layer = Layer();
  kvserve_view view;
  kvserve_encoder* encoder = Encoder("none", 0);
  kvserve_buffer* frame = NULL;
  CHECK(kvserve_geometry_create(KVSERVE_FLOAT16, &odd, 1, &geometry) == KVSERVE_INVALID_ARGUMENT);
  CHECK(kvserve_geometry_create(99, &odd, 1, &geometry) == KVSERVE_INVALID_ARGUMENT);
  CHECK(kvserve_geometry_create(KVSERVE_FLOAT16, NULL, 0, &geometry) == KVSERVE_INVALID_ARGUMENT);
  CHECK(kvserve_profile_parse(NULL, NULL) == KVSERVE_INVALID_ARGUMENT);
  CHECK(kvserve_encoder_create(NULL, NULL, &encoder) == KVSERVE_INVALID_ARGUMENT);
  CHECK_OK(kvserve_buffer_create(&frame));
  CHECK(kvserve_encoder_encode(encoder, NULL, NULL, frame) == KVSERVE_INVALID_ARGUMENT);
  geometry = Geometry();
  view = View(geometry, &layer);
  layer.layer = 1;
  CHECK(kvserve_encoder_encode(encoder, &view, NULL, frame) == KVSERVE_INVALID_ARGUMENT);
  layer = Layer();
  layer.token_end = 0;
  CHECK(kvserve_encoder_encode(encoder, &view, NULL, frame) == KVSERVE_INVALID_ARGUMENT);
  layer = Layer();
  layer.v.data = NULL;
  CHECK(kvserve_encoder_encode(encoder, &view, NULL, frame) == KVSERVE_INVALID_ARGUMENT);
  CHECK(kvserve_buffer_size(frame) == 0);
  CHECK(kvserve_calibration_load("no such file", NULL) == KVSERVE_INVALID_ARGUMENT);
  kvserve_buffer_destroy(frame);
  kvserve_encoder_destroy(encoder);
  kvserve_geometry_destroy(geometry);
  kvserve_geometry_destroy(NULL);
}

int main(void) {
  CHECK(strcmp(kvserve_last_error(), "") == 0);
  TestVersions();
  TestProfiles();
  TestRoundTrip("none", 0);
  TestRoundTrip("lossless", 2);
  TestFingerprints();
  TestDroppedTokens();
  TestRequests();
  TestStructSizes();
  TestWrongUsage();
  return CheckResult();
}
