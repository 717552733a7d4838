// Encode a chunk of KV to a self-contained frame, and decode it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvserve/calibration.h"
#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "kvserve/profile.h"
#include "kvserve/view.h"

namespace kvserve {

// Queries of one layer, [token, head, dim] float32 as attention uses them: after RoPE, not yet
// divided by sqrt(dim). Query heads of one KV head are neighbours: heads is a multiple of kv_heads.
struct QueryLayer {
  std::uint32_t layer = 0;
  std::uint32_t heads = 0;
  std::uint32_t dim = 0;  // that of the layer's keys
  std::span<const float> values;
};

// Queries of some tokens of the prompt, in and out of the frame alike. Views only; the values are
// the caller's.
struct QueryView {
  TokenRange tokens;
  std::vector<QueryLayer> layers;  // ascending
};

// What an encoder remembers of one request from frame to frame, so that a frame's tokens are
// weighed beside those that were sent before: for profiles with a selector that looks back
// (`expected:keys=seen`), and empty for all others. Frames come in the order of their tokens; one
// that comes again replaces what it left, and all that followed. Grows by about 1 % of the KV that
// it has seen. Serves every encoder of the same profile; one thread at a time. With
// CodecOptions::fallback it also keeps what frames looked like.
class RequestMemory {
 public:
  RequestMemory(RequestMemory&&) noexcept;
  RequestMemory& operator=(RequestMemory&&) noexcept;
  ~RequestMemory();

  // False: nothing is ever remembered, and frames may come in any order and from many threads.
  [[nodiscard]] bool looks_back() const;

 private:
  friend class FrameEncoder;
  struct State;
  explicit RequestMemory(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct EncodeOptions {
  Fingerprint model;                // written into the frame; decoders refuse another model's
  Fingerprint key;                  // identity of the token prefix [0, tokens.end)
  std::uint32_t prompt_tokens = 0;  // length of the whole prefill; 0: not known yet
  // For profiles with a selector that ranks keys by attention; read during the call.
  const QueryView* queries = nullptr;
  // Of the request that the frame belongs to, from NewRequest; null: a frame on its own. Decoders
  // need to know nothing of it.
  RequestMemory* request = nullptr;
};

struct DecodeOptions {
  Fingerprint model;                                     // empty: any
  Fingerprint key;                                       // empty: any
  std::uint64_t max_raw_bytes = std::uint64_t{1} << 34;  // refuse larger frames before allocating
};

// How frames are worked on; changes no byte.
struct CodecOptions {
  std::uint32_t threads = 1;                               // 1..256, the caller's included
  std::shared_ptr<const CalibrationArtefact> calibration;  // for chains that need one
  // Encoders of profiles that need an artefact: what encodes frames whose KV is unlike that of the
  // calibration's texts (FrameEncoder::drift), a profile that needs no artefact. No stages: none
  // does. Decoders are told by each frame what it is made by.
  Profile fallback;
};

// How far the KV is from what its calibration artefact expects: of the frame and of the request's
// frames before it together (EncodeOptions::request), or of the frame alone. In standard deviations
// of the calibration's frames, 0 where nothing is expected; docs/CALIBRATION.md, "Drift".
struct FrameDrift {
  bool fell_back = false;  // encoded by CodecOptions::fallback
  std::string cause;       // which quantity was out of bounds, a label of metrics; else empty
  std::string reason;      // the same with how far, for people
  // Root mean square over the planes; about 1 for texts of the calibration's kinds.
  double energy = 0.0;           // logarithm of the mean square of whitened values
  double prediction_gain = 0.0;  // logarithm of what prediction takes off it
  // Means over the keys' planes.
  double key_gain_loss = 0.0;  // of that gain
  double key_residual = 0.0;   // logarithm of what prediction leaves
  // Bits of classes and symbols per value over those expected at the profile's step; frames near
  // the prompt's end need more, and count only while there are no others. 0: unknown.
  double code_length_ratio = 0.0;
};

// Seconds spent per stage name, summed over threads ("hadamard", "uniform", "rans"; "frame" for
// headers and checksums).
using StageSeconds = std::map<std::string, double>;

// Parses the short form ("hadamard|uniform:k_levels=16,v_levels=8|rans"), "none" or "lossless", or
// a preset ("kivi2", "published:k_levels=8", where options set those of the stages that have them;
// kvserve/stages.h lists the presets). A preset's profile is named as the preset, with the options
// that differ from it. kInvalidArgument names the stage or option and lists what exists.
[[nodiscard]] Result<Profile> ParseProfile(std::string_view text);

// Appends one frame to `out`. Host memory only for now (kUnsupported otherwise). Bytes depend on
// the tensor values, profile and options alone (and on the earlier frames of options.request).
// Times are added to `seconds`. Safe from many threads on different `out`. Errors, which leave
// `out` as it was: kInvalidArgument (view or profile does not fit), kUnsupported (dtype, device, a
// stage that this build lacks), kBadInput (non-finite values where a lossy stage needs finite
// ones), kResourceExhausted (no memory).
[[nodiscard]] Status EncodeFrame(const ConstKvView& view, const Profile& profile,
                                 const EncodeOptions& options, std::vector<std::byte>& out,
                                 StageSeconds* seconds = nullptr, const CodecOptions& codec = {});

// Decodes the frame at the start of `bytes` into `out` (resized) and returns the frame's length in
// bytes. Hostile input is safe: kCorruptData, kUnsupported, kMismatch or kResourceExhausted.
// `out` is unspecified after an error. Lossless profiles restore every bit. Threads and `seconds`
// as EncodeFrame.
[[nodiscard]] Result<std::size_t> DecodeFrame(std::span<const std::byte> bytes,
                                              const DecodeOptions& options, KvBuffer& out,
                                              StageSeconds* seconds = nullptr,
                                              const CodecOptions& codec = {});

// Encodes frame after frame by one profile. Keeps its threads, plans and scratch memory: once it
// has seen the shapes, Encode takes no memory from the system (but for the growth of `out`). Frames
// are those of EncodeFrame, byte for byte. One thread at a time.
class FrameEncoder {
 public:
  // kInvalidArgument for a profile or options that cannot be, also one that needs a calibration
  // artefact where there is none; kUnsupported for a stage that this build lacks;
  // kResourceExhausted without memory or threads.
  [[nodiscard]] static Result<FrameEncoder> Create(const Profile& profile,
                                                   CodecOptions options = {});
  FrameEncoder(FrameEncoder&&) noexcept;
  FrameEncoder& operator=(FrameEncoder&&) noexcept;
  ~FrameEncoder();

  // For the frames of one request. Throws std::bad_alloc alone.
  [[nodiscard]] RequestMemory NewRequest() const;

  // As EncodeFrame; kInvalidArgument from an encoder that was moved from, and for the request
  // memory of another profile.
  [[nodiscard]] Status Encode(const ConstKvView& view, const EncodeOptions& options,
                              std::vector<std::byte>& out, StageSeconds* seconds = nullptr);
  // How many values of the last frame a quantizer limited to the largest that it can express (fp8
  // without a scale), so that their error has no bound. Means nothing after an error.
  [[nodiscard]] std::uint64_t clamped_values() const;
  // Of the last frame; all is 0 without CodecOptions::fallback. Means nothing after an error.
  [[nodiscard]] const FrameDrift& drift() const;

 private:
  struct State;
  explicit FrameEncoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Decodes frame after frame, of any profiles; plans of recent ones, threads and scratch memory are
// kept. One thread at a time.
class FrameDecoder {
 public:
  // kInvalidArgument for threads out of range, kResourceExhausted when the system lacks them.
  [[nodiscard]] static Result<FrameDecoder> Create(CodecOptions options = {});
  FrameDecoder(FrameDecoder&&) noexcept;
  FrameDecoder& operator=(FrameDecoder&&) noexcept;
  ~FrameDecoder();

  // As DecodeFrame. kMismatch when the frame names a calibration artefact other than the one given,
  // or when none was given; kInvalidArgument from a decoder that was moved from.
  [[nodiscard]] Result<std::size_t> Decode(std::span<const std::byte> bytes,
                                           const DecodeOptions& options, KvBuffer& out,
                                           StageSeconds* seconds = nullptr);

  // Which tokens the last frame left out, [token] of its range: 1 where every layer that holds the
  // token has dropped it, from K and V. `out` has zeros there, which attention must not see; empty
  // when there are none. Valid until the next call; means nothing after an error.
  [[nodiscard]] std::span<const std::uint8_t> dropped() const;
  // Some layers, keys or values of the last frame have dropped tokens that others hold. `out` has
  // zeros there, which only an engine with a mask per layer can tell from keys.
  [[nodiscard]] bool partly_dropped() const;

 private:
  struct State;
  explicit FrameDecoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Identity of a token prefix: XXH3-128 over the little-endian int32 token ids, seeded by the model.
[[nodiscard]] Fingerprint PrefixKey(const Fingerprint& model, std::span<const std::int32_t> tokens);

}  // namespace kvserve
