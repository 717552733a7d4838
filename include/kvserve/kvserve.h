/* KVServe for other languages and engines: a C ABI (C99) over profiles, frames, paged caches,
   senders and receivers.

   Handles. Types without a body are opaque; every *_create, *_parse, *_load gives one that its
   *_destroy ends (NULL is allowed there). What a getter returns belongs to the handle.
   Errors. Functions return a status; values are those of kvserve::ErrorCode, pinned. A text in one
   line is in kvserve_last_error() of the same thread until its next call that fails.
   NULL where something is needed is KVSERVE_INVALID_ARGUMENT, never a crash.
   Growth. A struct that starts with struct_size may gain fields at its end: set struct_size =
   sizeof(the struct) and everything else to zero first; zero means the default. The other structs
   are fixed. Functions are only added. KVSERVE_ABI_VERSION counts breaks, if ever there is one.
   Threads. Handles of profiles, geometries, calibrations and caches may be shared; an encoder,
   decoder, buffer or chunk is for one thread at a time.
   Memory. Tensors stay the caller's, are host memory aligned to their elements, and may have any
   strides; strides are in elements. Token ranges are half-open, positions in the request. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* NOLINTBEGIN(readability-identifier-naming) */

#define KVSERVE_ABI_VERSION 1
#define KVSERVE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t kvserve_status;
enum {
  KVSERVE_OK = 0,
  KVSERVE_INTERNAL = 1,            /* a fault of ours */
  KVSERVE_INVALID_ARGUMENT = 2,    /* wrong usage or configuration */
  KVSERVE_BAD_INPUT = 3,           /* a file or tensor that cannot be used as asked */
  KVSERVE_CORRUPT_DATA = 4,        /* bytes that contradict their checksum, lengths or format */
  KVSERVE_UNAVAILABLE = 5,         /* peer or store not reachable */
  KVSERVE_BUDGET_EXCEEDED = 6,     /* quality or SLO cannot be met */
  KVSERVE_UNSUPPORTED = 7,         /* well-formed, but this build does not do it */
  KVSERVE_MISMATCH = 8,            /* two sides do not fit: model, geometry, protocol, key */
  KVSERVE_DEADLINE_EXCEEDED = 9,   /* the request's deadline passed */
  KVSERVE_CANCELLED = 10,          /* the caller or the peer gave up */
  KVSERVE_RESOURCE_EXHAUSTED = 11, /* a stated limit would be passed */
  KVSERVE_PERMISSION_DENIED = 12   /* wrong or missing token */
};

KVSERVE_API uint32_t kvserve_abi_version(void); /* of the library; KVSERVE_ABI_VERSION is yours */
KVSERVE_API const char* kvserve_version(void);  /* "0.1.0" */
KVSERVE_API const char* kvserve_status_name(kvserve_status status); /* "corrupt_data"; "ok" */
KVSERVE_API const char* kvserve_last_error(void);                   /* "" before the first */

/* ---- shapes ---------------------------------------------------------------------------------- */

typedef int32_t kvserve_dtype;
enum {
  KVSERVE_FLOAT16 = 1,
  KVSERVE_BFLOAT16 = 2,
  KVSERVE_FLOAT32 = 3,
  KVSERVE_FLOAT8_E4M3FN = 4,
  KVSERVE_FLOAT8_E4M3FNUZ = 5,
  KVSERVE_FLOAT8_E5M2 = 6,
  KVSERVE_FLOAT8_E5M2FNUZ = 7,
  KVSERVE_UINT8 = 8 /* opaque bytes, moved bit for bit */
};
KVSERVE_API size_t kvserve_dtype_bytes(kvserve_dtype dtype); /* 0: unknown */

enum { KVSERVE_ROPE_NONE = 0, KVSERVE_ROPE_INTERLEAVED = 1, KVSERVE_ROPE_HALVES = 2 };

/* One layer of the cache; K and V are [token, head, dim]. */
typedef struct kvserve_layer {
  uint32_t kv_heads;      /* 1..4096 */
  uint32_t k_dim;         /* values per head, 1..65536 */
  uint32_t v_dim;         /* 0: a single plane (MLA), in K */
  uint32_t window_tokens; /* 0: all tokens; else only the last so many are held */
  uint32_t rope_style;    /* KVSERVE_ROPE_... */
  float rope_theta;       /* 0 without RoPE */
} kvserve_layer;

typedef struct kvserve_geometry kvserve_geometry;
KVSERVE_API kvserve_status kvserve_geometry_create(kvserve_dtype dtype, const kvserve_layer* layers,
                                                   size_t layer_count, kvserve_geometry** out);
KVSERVE_API void kvserve_geometry_destroy(kvserve_geometry* geometry);
KVSERVE_API kvserve_dtype kvserve_geometry_dtype(const kvserve_geometry* geometry);
KVSERVE_API size_t kvserve_geometry_layer_count(const kvserve_geometry* geometry);
KVSERVE_API kvserve_status kvserve_geometry_layer(const kvserve_geometry* geometry, size_t layer,
                                                  kvserve_layer* out);

/* One plane in memory, axes [token, head, dim]; its sizes are the layer's. */
typedef struct kvserve_plane {
  void* data; /* only read where the plane is an input */
  int64_t token_stride;
  int64_t head_stride;
  int64_t dim_stride;
} kvserve_plane;

typedef struct kvserve_layer_view {
  uint32_t layer;       /* of the model */
  uint32_t token_begin; /* that this layer holds; a window layer may hold few, or none */
  uint32_t token_end;
  uint32_t reserved; /* 0 */
  kvserve_plane k;
  kvserve_plane v; /* no data for a single plane */
} kvserve_layer_view;

/* A chunk of tokens over some layers, in ascending order. */
typedef struct kvserve_view {
  size_t struct_size;
  const kvserve_geometry* geometry; /* of the whole model */
  uint32_t token_begin;
  uint32_t token_end;
  const kvserve_layer_view* layers;
  size_t layer_count;
} kvserve_view;

/* ---- profiles -------------------------------------------------------------------------------- */

typedef struct kvserve_profile kvserve_profile;
/* "none", "lossless", "hadamard|uniform:k_levels=16,v_levels=8|rans". */
KVSERVE_API kvserve_status kvserve_profile_parse(const char* text, kvserve_profile** out);
KVSERVE_API void kvserve_profile_destroy(kvserve_profile* profile);
KVSERVE_API const char* kvserve_profile_name(const kvserve_profile* profile); /* canonical */
KVSERVE_API int kvserve_profile_is_lossless(
    const kvserve_profile* profile); /* every bit comes back */
KVSERVE_API int kvserve_profile_needs_calibration(const kvserve_profile* profile);
/* The selector by which frames may leave tokens out (kvserve_decoder_dropped), or "". An engine
   that cannot leave tokens out of its cache refuses such a profile. */
KVSERVE_API const char* kvserve_profile_may_drop(const kvserve_profile* profile);

typedef struct kvserve_calibration kvserve_calibration;
KVSERVE_API kvserve_status kvserve_calibration_load(const char* path, kvserve_calibration** out);
KVSERVE_API void kvserve_calibration_destroy(kvserve_calibration* calibration);

/* ---- frames ---------------------------------------------------------------------------------- */

typedef struct kvserve_fingerprint {
  uint8_t bytes[16]; /* all zero: not known, or any */
} kvserve_fingerprint;

typedef struct kvserve_codec_options {
  size_t struct_size;
  const kvserve_calibration* calibration; /* for profiles that need one */
  uint32_t threads;                       /* 1..256, the caller's included; 0: 1. Change no byte */
  /* Encoders of profiles that need calibration: what encodes frames whose KV is unlike that of the
     calibration's texts, a profile that needs none itself; NULL: nothing does */
  const kvserve_profile* fallback;
} kvserve_codec_options;

/* What an encoder remembers of one request from frame to frame, for profiles with a selector that
   looks back (expected:keys=seen); kvserve_request_create is below. */
typedef struct kvserve_request kvserve_request;

typedef struct kvserve_encode_options {
  size_t struct_size;
  kvserve_fingerprint model; /* written into the frame */
  kvserve_fingerprint key;   /* see kvserve_prefix_key */
  uint32_t prompt_tokens;    /* of the whole prefill; 0: not known yet */
  kvserve_request* request;  /* that the frame belongs to; NULL: a frame on its own */
} kvserve_encode_options;

typedef struct kvserve_decode_options {
  size_t struct_size;
  kvserve_fingerprint model; /* frames of another are KVSERVE_MISMATCH */
  kvserve_fingerprint key;
  uint64_t max_raw_bytes; /* larger frames are refused before anything is allocated; 0: 16 GiB */
} kvserve_decode_options;

/* Bytes that grow. */
typedef struct kvserve_buffer kvserve_buffer;
KVSERVE_API kvserve_status kvserve_buffer_create(kvserve_buffer** out);
KVSERVE_API void kvserve_buffer_destroy(kvserve_buffer* buffer);
KVSERVE_API const uint8_t* kvserve_buffer_data(const kvserve_buffer* buffer);
KVSERVE_API size_t kvserve_buffer_size(const kvserve_buffer* buffer);
KVSERVE_API void kvserve_buffer_clear(kvserve_buffer* buffer); /* keeps its memory */

/* Options may be NULL, here and below. */
typedef struct kvserve_encoder kvserve_encoder;
KVSERVE_API kvserve_status kvserve_encoder_create(const kvserve_profile* profile,
                                                  const kvserve_codec_options* options,
                                                  kvserve_encoder** out);
KVSERVE_API void kvserve_encoder_destroy(kvserve_encoder* encoder);
/* Appends one frame, which depends on values, profile and options alone. After an error the buffer
   is as it was. KVSERVE_BAD_INPUT: values that are not finite where a lossy stage needs them. */
KVSERVE_API kvserve_status kvserve_encoder_encode(kvserve_encoder* encoder,
                                                  const kvserve_view* view,
                                                  const kvserve_encode_options* options,
                                                  kvserve_buffer* out);

/* Why the last frame was encoded by the fallback, "" if it was not; until the next frame. Means
   nothing after an error. */
KVSERVE_API const char* kvserve_encoder_fallback_reason(const kvserve_encoder* encoder);

/* For the frames of one request, which come in the order of their tokens. It serves every encoder
   of the same profile (KVSERVE_INVALID_ARGUMENT from others), one thread at a time. */
KVSERVE_API kvserve_status kvserve_request_create(const kvserve_encoder* encoder,
                                                  kvserve_request** out);
KVSERVE_API void kvserve_request_destroy(kvserve_request* request);

/* A decoded chunk, planes contiguous [token, head, dim], memory kept between frames. */
typedef struct kvserve_chunk kvserve_chunk;
KVSERVE_API kvserve_status kvserve_chunk_create(kvserve_chunk** out);
KVSERVE_API void kvserve_chunk_destroy(kvserve_chunk* chunk);
/* Its layers, until the chunk is decoded into again. `out->struct_size` is set by the caller. */
KVSERVE_API kvserve_status kvserve_chunk_view(const kvserve_chunk* chunk, kvserve_view* out);
/* Into tensors of the same shapes. */
KVSERVE_API kvserve_status kvserve_chunk_copy_to(const kvserve_chunk* chunk,
                                                 const kvserve_view* to);

typedef struct kvserve_decoder kvserve_decoder;
KVSERVE_API kvserve_status kvserve_decoder_create(const kvserve_codec_options* options,
                                                  kvserve_decoder** out);
KVSERVE_API void kvserve_decoder_destroy(kvserve_decoder* decoder);
/* Decodes the frame at the start of `data`, which may be hostile; its length goes to `frame_bytes`
   unless that is NULL. After an error the chunk is empty. */
KVSERVE_API kvserve_status kvserve_decoder_decode(kvserve_decoder* decoder, const void* data,
                                                  size_t size,
                                                  const kvserve_decode_options* options,
                                                  kvserve_chunk* out, size_t* frame_bytes);

/* Which tokens the last frame left out, one byte per token of its range: 1 where all layers have
   dropped it, whose rows are zero and must not be attended to. `count` is 0 when there are none.
   The bytes are the decoder's until its next call. */
KVSERVE_API kvserve_status kvserve_decoder_dropped(const kvserve_decoder* decoder,
                                                   const uint8_t** tokens, size_t* count);
/* Some layers, keys or values of the last frame have dropped tokens that others hold. */
KVSERVE_API int kvserve_decoder_partly_dropped(const kvserve_decoder* decoder);

/* Identity of a token prefix: XXH3-128 over the little-endian token ids, seeded by the model. */
KVSERVE_API kvserve_status kvserve_prefix_key(const kvserve_fingerprint* model,
                                              const int32_t* tokens, size_t token_count,
                                              kvserve_fingerprint* out);

/* ---- paged caches ---------------------------------------------------------------------------- */

/* One plane of the whole cache, axes [block, slot, head, dim]; slot is a token's place in its
   block. */
typedef struct kvserve_paged_plane {
  void* data; /* of block 0, slot 0, head 0, dim 0 */
  int64_t block_stride;
  int64_t slot_stride;
  int64_t head_stride;
  int64_t dim_stride;
} kvserve_paged_plane;

typedef struct kvserve_paged_layer {
  uint32_t group;    /* which of a request's block tables is this layer's */
  uint32_t reserved; /* 0 */
  kvserve_paged_plane k;
  kvserve_paged_plane v; /* no data for a single plane */
} kvserve_paged_layer;

/* Memory orders of known engines, each one contiguous tensor. */
enum {
  KVSERVE_NHD = 0,     /* [2, block, slot, head, dim]: all K, then all V */
  KVSERVE_HND = 1,     /* [2, block, head, slot, dim] */
  KVSERVE_VLLM_CPU = 2 /* [block, head, (K: [dim, slot], V: [slot, dim])] */
};
KVSERVE_API kvserve_status kvserve_lay_out_layer(int32_t layout, void* data,
                                                 const kvserve_layer* shape, kvserve_dtype dtype,
                                                 uint32_t blocks, uint32_t block_tokens,
                                                 kvserve_paged_layer* out);

/* The cache of one engine rank; its memory outlives the handle and whatever was started on it. */
typedef struct kvserve_paged_cache kvserve_paged_cache;
KVSERVE_API kvserve_status kvserve_paged_cache_create(const kvserve_geometry* geometry,
                                                      uint32_t block_tokens, uint32_t blocks,
                                                      const kvserve_paged_layer* layers,
                                                      size_t layer_count,
                                                      kvserve_paged_cache** out);
KVSERVE_API void kvserve_paged_cache_destroy(kvserve_paged_cache* cache);

/* The blocks of one request in one group: token t is in block blocks[t / block_tokens]. */
typedef struct kvserve_block_table {
  const uint32_t* blocks;
  size_t count;
} kvserve_block_table;
#define KVSERVE_NO_BLOCK UINT32_MAX /* a block that the request does not hold */

/* Copies tokens between the blocks of a request and planes: for each layer of the view those of its
   tokens that lie in [token_begin, token_end). `tables` is [group]. Nothing is copied after an
   error. Safe from many threads while no block is written that another reads. */
KVSERVE_API kvserve_status kvserve_gather(const kvserve_paged_cache* cache,
                                          const kvserve_block_table* tables, size_t table_count,
                                          uint32_t token_begin, uint32_t token_end,
                                          const kvserve_view* out);
KVSERVE_API kvserve_status kvserve_scatter(const kvserve_view* in, uint32_t token_begin,
                                           uint32_t token_end, const kvserve_block_table* tables,
                                           size_t table_count, const kvserve_paged_cache* cache);

/* ---- between two engines ----------------------------------------------------------------------
 */

/* The sending side: reads a request's KV out of the engine's blocks as it is computed, encodes it,
   and serves it to whoever has the ticket. Calls are thread-safe and none waits for the network. */
typedef struct kvserve_sender_options {
  size_t struct_size;
  const char* listen;                     /* host:port; NULL: 127.0.0.1:0 */
  const char* token_file;                 /* shared secret, mode 600; needed beyond loopback */
  const kvserve_calibration* calibration; /* for profiles that need one */
  kvserve_fingerprint model;              /* receivers of another are refused */
  uint32_t frame_tokens;                  /* per frame; 0: 256 */
  uint32_t layers_per_frame;              /* 0: all */
  uint32_t threads;                       /* that encode; 0: 1 */
  uint32_t reserved;                      /* 0 */
  double lease_s; /* a ticket of which nothing was staged or taken for so long is dropped; 0: 300 */
  uint64_t max_staged_bytes; /* frames and raw KV waiting, all tickets; 0: 4 GiB */
  double pace_bytes_per_s;   /* 0: unlimited */
  /* Encodes frames whose KV is unlike that of the calibration's texts, a profile that needs no
     calibration itself; NULL: nothing does. Receivers are told. */
  const kvserve_profile* fallback;
} kvserve_sender_options;

typedef struct kvserve_sender kvserve_sender;
KVSERVE_API kvserve_status kvserve_sender_start(const kvserve_paged_cache* cache,
                                                const kvserve_sender_options* options,
                                                kvserve_sender** out);
/* Ends every transfer; receivers are told. */
KVSERVE_API void kvserve_sender_destroy(kvserve_sender* sender);
KVSERVE_API const char* kvserve_sender_address(const kvserve_sender* sender); /* the real port */

typedef struct kvserve_offer {
  size_t struct_size;
  const char* profile;   /* short form */
  const int32_t* tokens; /* whose KV is sent */
  size_t token_count;
  const void* context; /* whatever else the KV depends on (adapter, images, salt); may be NULL */
  size_t context_bytes;
  uint32_t receivers; /* that will take it; it is kept until so many have; 0: 1 */
  uint32_t reserved;  /* 0 */
} kvserve_offer;
KVSERVE_API kvserve_status kvserve_sender_begin(kvserve_sender* sender, const char* ticket,
                                                const kvserve_offer* offer);
/* The KV of these tokens in layers [first_layer, first_layer + layers) is in the blocks: read it
   and encode what is complete. Returns before anything is read. Tokens come in order per layer. */
KVSERVE_API kvserve_status kvserve_sender_stage(kvserve_sender* sender, const char* ticket,
                                                const kvserve_block_table* tables,
                                                size_t table_count, uint32_t token_begin,
                                                uint32_t token_end, uint32_t first_layer,
                                                uint32_t layers);
/* Returns when everything staged so far has been read: its blocks may be overwritten. */
KVSERVE_API kvserve_status kvserve_sender_wait_read(kvserve_sender* sender);
/* Drops a ticket; a receiver is told the reason. Unknown tickets are ignored. */
KVSERVE_API kvserve_status kvserve_sender_withdraw(kvserve_sender* sender, const char* ticket,
                                                   kvserve_status code, const char* message);
KVSERVE_API size_t kvserve_sender_open_tickets(const kvserve_sender* sender);
KVSERVE_API uint64_t kvserve_sender_staged_bytes(const kvserve_sender* sender);

enum {
  KVSERVE_DELIVERED = 0, /* its receivers have taken and confirmed all they wanted */
  KVSERVE_EXPIRED = 1,   /* not staged, or not taken, within the lease */
  KVSERVE_WITHDRAWN = 2, /* by the sender, or a receiver needs nothing */
  KVSERVE_FAILED = 3     /* could not be read, encoded or held; receivers were told why */
};
typedef struct kvserve_offer_report {
  size_t struct_size;
  const char* ticket;
  int32_t outcome;
  kvserve_status error;      /* unless delivered */
  const char* error_message; /* "" without */
  uint32_t tokens;
  uint32_t frames;
  uint32_t lossless_fallbacks; /* frames that the profile could not code or made larger */
  uint32_t drift_fallbacks;    /* frames that kvserve_sender_options.fallback encoded */
  uint64_t raw_bytes;          /* staged, in the cache dtype */
  uint64_t wire_bytes;         /* frames made */
  uint64_t sent_bytes;         /* frames taken by receivers */
  double gather_s;             /* summed over threads */
  double encode_s;             /* likewise */
  double ready_s;              /* from begin to the last frame made */
  const char* drift_cause; /* of the first of drift_fallbacks: what was out of bounds; "" without */
  const char* drift_reason; /* the same and how far, for people */
} kvserve_offer_report;
/* A ticket that has ended, each once: *found is 1, or 0 when there is none. Texts are valid until
   the next call of this function, which is for one thread at a time. */
KVSERVE_API kvserve_status kvserve_sender_take_report(kvserve_sender* sender,
                                                      kvserve_offer_report* out, int* found);

/* The receiving side: takes the KV of a ticket, decodes it and writes it into the blocks. Every
   fetch ends in exactly one report, within its deadline; after that no block of it is written. */
typedef struct kvserve_receiver_options {
  size_t struct_size;
  const char* token_file;                 /* shared secret, mode 600; NULL: none */
  const kvserve_calibration* calibration; /* for frames that name one */
  kvserve_fingerprint model;              /* senders of another are refused */
  uint32_t threads;                       /* that decode and write; 0: 1 */
  uint32_t connections;                   /* transfers at the same time; 0: 16 */
  double stall_s;                         /* no byte for so long: the fetch has failed; 0: 30 */
} kvserve_receiver_options;

typedef struct kvserve_receiver kvserve_receiver;
KVSERVE_API kvserve_status kvserve_receiver_start(const kvserve_paged_cache* cache,
                                                  const kvserve_receiver_options* options,
                                                  kvserve_receiver** out);
/* Cancels what runs and waits for its writes. */
KVSERVE_API void kvserve_receiver_destroy(kvserve_receiver* receiver);

typedef struct kvserve_fetch_request {
  size_t struct_size;
  const char* id;      /* the caller's, unique among running fetches */
  const char* address; /* the sender's host:port */
  const char* ticket;
  const int32_t* tokens; /* as offered */
  size_t token_count;
  const void* context; /* as offered */
  size_t context_bytes;
  const kvserve_block_table* tables; /* [group]; their blocks are the request's until the report */
  size_t table_count;
  uint32_t wanted_begin; /* what is not held already; it ends at token_count */
  uint32_t reserved;     /* 0 */
  double deadline_s;     /* from now; 0: 120 */
} kvserve_fetch_request;
KVSERVE_API kvserve_status kvserve_receiver_fetch(kvserve_receiver* receiver,
                                                  const kvserve_fetch_request* request);
/* Its report comes soon, with KVSERVE_CANCELLED unless it has ended already. */
KVSERVE_API kvserve_status kvserve_receiver_cancel(kvserve_receiver* receiver, const char* id);
/* Tells a sender that nothing of a ticket is needed. Best effort: the lease does the rest. */
KVSERVE_API kvserve_status kvserve_receiver_release(kvserve_receiver* receiver, const char* address,
                                                    const char* ticket);
KVSERVE_API size_t kvserve_receiver_running(const kvserve_receiver* receiver);

typedef struct kvserve_fetch_report {
  size_t struct_size;
  const char* id;
  const char* ticket;
  const char* profile;       /* as the sender tells it */
  const char* error_message; /* "" without */
  kvserve_status error;      /* not KVSERVE_OK: the blocks hold nothing that may be used */
  uint32_t tokens;           /* written per full layer */
  uint32_t frames;
  uint32_t lossless_fallbacks; /* frames that the profile could not code or made larger */
  uint64_t raw_bytes;
  uint64_t wire_bytes;
  double queue_s;  /* before a connection was free and made */
  double wire_s;   /* receiving */
  double decode_s; /* decoding and writing, summed over threads */
  double total_s;
  double link_bytes_per_s;  /* 0: nothing was received for long enough to tell */
  uint32_t drift_fallbacks; /* frames by the fallback that the sender has announced */
  uint32_t reserved;
} kvserve_fetch_report;
/* As kvserve_sender_take_report. */
KVSERVE_API kvserve_status kvserve_receiver_take_report(kvserve_receiver* receiver,
                                                        kvserve_fetch_report* out, int* found);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(readability-identifier-naming) */
