// Encoder, decoder and what they fill.
#include "kvserve/codec.h"

#include <span>

#include "capi/capi.h"

namespace kvserve::capi {
namespace {

Result<CodecOptions> ToOptions(const kvserve_codec_options* options) {
  const auto given =
      Read(options, offsetof(kvserve_codec_options, threads) + sizeof(std::uint32_t));
  if (!given) return tl::unexpected(given.error());
  CodecOptions result;
  if (given->threads != 0) result.threads = given->threads;
  if (given->calibration != nullptr) result.calibration = given->calibration->artefact;
  if (given->fallback != nullptr) result.fallback = given->fallback->profile;
  return result;
}

Result<EncodeOptions> ToOptions(const kvserve_encode_options* options) {
  const auto given =
      Read(options, offsetof(kvserve_encode_options, prompt_tokens) + sizeof(std::uint32_t));
  if (!given) return tl::unexpected(given.error());
  EncodeOptions result{ToFingerprint(given->model), ToFingerprint(given->key),
                       given->prompt_tokens};
  if (given->request != nullptr) result.request = &given->request->memory;
  return result;
}

Result<DecodeOptions> ToOptions(const kvserve_decode_options* options) {
  const auto given =
      Read(options, offsetof(kvserve_decode_options, max_raw_bytes) + sizeof(std::uint64_t));
  if (!given) return tl::unexpected(given.error());
  DecodeOptions result{ToFingerprint(given->model), ToFingerprint(given->key)};
  if (given->max_raw_bytes != 0) result.max_raw_bytes = given->max_raw_bytes;
  return result;
}

void ShowLayers(kvserve_chunk& chunk) {
  chunk.geometry.geometry = chunk.buffer.geometry();
  for (const LayerView& layer : chunk.buffer.view().layers) {
    chunk.layers.push_back(FromLayerView(layer));
  }
}

Status DecodeInto(kvserve_decoder& decoder, std::span<const std::byte> bytes,
                  const DecodeOptions& options, kvserve_chunk& out, std::size_t* frame_bytes) {
  out.layers.clear();
  const auto length = decoder.decoder.Decode(bytes, options, out.buffer);
  if (!length) return tl::unexpected(length.error());
  ShowLayers(out);
  if (frame_bytes != nullptr) *frame_bytes = *length;
  return {};
}

}  // namespace
}  // namespace kvserve::capi

extern "C" {

using namespace kvserve;
using namespace kvserve::capi;

kvserve_status kvserve_buffer_create(kvserve_buffer** out) {
  return Run([&]() -> Status {
    if (auto status = Need("a place for the buffer", out); !status) return status;
    *out = std::make_unique<kvserve_buffer>().release();
    return {};
  });
}

void kvserve_buffer_destroy(kvserve_buffer* buffer) {
  delete buffer;
}

const uint8_t* kvserve_buffer_data(const kvserve_buffer* buffer) {
  return buffer == nullptr ? nullptr : reinterpret_cast<const uint8_t*>(buffer->bytes.data());
}

size_t kvserve_buffer_size(const kvserve_buffer* buffer) {
  return buffer == nullptr ? 0 : buffer->bytes.size();
}

void kvserve_buffer_clear(kvserve_buffer* buffer) {
  if (buffer != nullptr) buffer->bytes.clear();
}

kvserve_status kvserve_encoder_create(const kvserve_profile* profile,
                                      const kvserve_codec_options* options, kvserve_encoder** out) {
  return Run([&]() -> Status {
    if (auto status = Need("a profile and a place for the encoder", profile, out); !status) {
      return status;
    }
    auto codec = ToOptions(options);
    if (!codec) return tl::unexpected(codec.error());
    auto encoder = FrameEncoder::Create(profile->profile, std::move(*codec));
    if (!encoder) return tl::unexpected(encoder.error());
    *out = std::make_unique<kvserve_encoder>(kvserve_encoder{std::move(*encoder)}).release();
    return {};
  });
}

void kvserve_encoder_destroy(kvserve_encoder* encoder) {
  delete encoder;
}

kvserve_status kvserve_encoder_encode(kvserve_encoder* encoder, const kvserve_view* view,
                                      const kvserve_encode_options* options, kvserve_buffer* out) {
  return Run([&]() -> Status {
    if (auto status = Need("an encoder and a buffer", encoder, out); !status) return status;
    const auto planes = ToView(view);
    if (!planes) return tl::unexpected(planes.error());
    const auto encode = ToOptions(options);
    if (!encode) return tl::unexpected(encode.error());
    return encoder->encoder.Encode(ReadOnly(*planes), *encode, out->bytes);
  });
}

const char* kvserve_encoder_fallback_reason(const kvserve_encoder* encoder) {
  return encoder == nullptr ? "" : encoder->encoder.drift().reason.c_str();
}

kvserve_status kvserve_request_create(const kvserve_encoder* encoder, kvserve_request** out) {
  return Run([&]() -> Status {
    if (auto status = Need("an encoder and a place for the request", encoder, out); !status) {
      return status;
    }
    *out =
        std::make_unique<kvserve_request>(kvserve_request{encoder->encoder.NewRequest()}).release();
    return {};
  });
}

void kvserve_request_destroy(kvserve_request* request) {
  delete request;
}

kvserve_status kvserve_chunk_create(kvserve_chunk** out) {
  return Run([&]() -> Status {
    if (auto status = Need("a place for the chunk", out); !status) return status;
    *out = std::make_unique<kvserve_chunk>().release();
    return {};
  });
}

void kvserve_chunk_destroy(kvserve_chunk* chunk) {
  delete chunk;
}

kvserve_status kvserve_chunk_view(const kvserve_chunk* chunk, kvserve_view* out) {
  return Run([&]() -> Status {
    if (auto status = Need("a chunk and a place for its view", chunk, out); !status) return status;
    kvserve_view view{};
    view.geometry = &chunk->geometry;
    view.layers = chunk->layers.data();
    view.layer_count = chunk->layers.size();
    if (!chunk->layers.empty()) {
      view.token_begin = chunk->buffer.tokens().begin;
      view.token_end = chunk->buffer.tokens().end;
    }
    return Write(view, out, sizeof(kvserve_view));
  });
}

kvserve_status kvserve_chunk_copy_to(const kvserve_chunk* chunk, const kvserve_view* to) {
  return Run([&]() -> Status {
    if (auto status = Need("a chunk", chunk); !status) return status;
    if (chunk->layers.empty()) return MakeError(ErrorCode::kInvalidArgument, "the chunk is empty");
    const auto planes = ToView(to);
    if (!planes) return tl::unexpected(planes.error());
    return CopyKv(chunk->buffer.view(), *planes);
  });
}

kvserve_status kvserve_decoder_create(const kvserve_codec_options* options, kvserve_decoder** out) {
  return Run([&]() -> Status {
    if (auto status = Need("a place for the decoder", out); !status) return status;
    auto codec = ToOptions(options);
    if (!codec) return tl::unexpected(codec.error());
    auto decoder = FrameDecoder::Create(std::move(*codec));
    if (!decoder) return tl::unexpected(decoder.error());
    *out = std::make_unique<kvserve_decoder>(kvserve_decoder{std::move(*decoder)}).release();
    return {};
  });
}

void kvserve_decoder_destroy(kvserve_decoder* decoder) {
  delete decoder;
}

kvserve_status kvserve_decoder_decode(kvserve_decoder* decoder, const void* data, size_t size,
                                      const kvserve_decode_options* options, kvserve_chunk* out,
                                      size_t* frame_bytes) {
  return Run([&]() -> Status {
    if (auto status = Need("a decoder, bytes and a chunk", decoder, data, out); !status) {
      return status;
    }
    const auto decode = ToOptions(options);
    if (!decode) return tl::unexpected(decode.error());
    return DecodeInto(*decoder, {static_cast<const std::byte*>(data), size}, *decode, *out,
                      frame_bytes);
  });
}

kvserve_status kvserve_decoder_dropped(const kvserve_decoder* decoder, const uint8_t** tokens,
                                       size_t* count) {
  return Run([&]() -> Status {
    if (auto status = Need("a decoder and places for its tokens", decoder, tokens, count);
        !status) {
      return status;
    }
    const auto dropped = decoder->decoder.dropped();
    *tokens = dropped.data();
    *count = dropped.size();
    return {};
  });
}

int kvserve_decoder_partly_dropped(const kvserve_decoder* decoder) {
  return decoder != nullptr && decoder->decoder.partly_dropped() ? 1 : 0;
}

kvserve_status kvserve_prefix_key(const kvserve_fingerprint* model, const int32_t* tokens,
                                  size_t token_count, kvserve_fingerprint* out) {
  return Run([&]() -> Status {
    if (auto status = Need("a model, tokens and a place for the key", model, tokens, out);
        !status) {
      return status;
    }
    const Fingerprint key = PrefixKey(ToFingerprint(*model), {tokens, token_count});
    std::memcpy(out->bytes, key.bytes.data(), sizeof out->bytes);
    return {};
  });
}

}  // extern "C"
