// Encodes a chunk by a profile, or bit for bit where the profile cannot or does not pay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvserve/codec.h"

namespace kvserve {

// One thread at a time.
class ChunkEncoder {
 public:
  // Errors as FrameEncoder::Create.
  [[nodiscard]] static Result<ChunkEncoder> Create(const Profile& profile, CodecOptions options);

  // For the frames of one request.
  [[nodiscard]] RequestMemory NewRequest() const { return encoder_.NewRequest(); }

  // Appends one frame to `out`; tells whether it fell back: to `lossless` when the profile cannot
  // code the values (NaN, infinity) or makes them larger than they are, and to `none` when that is
  // larger still. Other errors as FrameEncoder::Encode.
  [[nodiscard]] Result<bool> Encode(const ConstKvView& view, const EncodeOptions& options,
                                    std::vector<std::byte>& out);
  // Of the last frame by the profile, as FrameEncoder tells it.
  [[nodiscard]] const FrameDrift& drift() const { return encoder_.drift(); }
  // Of the last frame, as FrameEncoder counts them; none in one that fell back.
  [[nodiscard]] std::uint64_t clamped_values() const { return clamped_values_; }

 private:
  ChunkEncoder(FrameEncoder encoder, bool plain, CodecOptions options);

  // The same by a built-in profile; replaces what is after `begin` if that is larger, or nothing.
  [[nodiscard]] Status EncodeBy(const char* profile, std::optional<FrameEncoder>& encoder,
                                const ConstKvView& view, EncodeOptions options, std::size_t begin,
                                std::vector<std::byte>& out);

  FrameEncoder encoder_;
  bool plain_ = false;  // the profile is `none`: there is nothing to fall back to
  CodecOptions options_;
  std::uint64_t clamped_values_ = 0;
  std::optional<FrameEncoder> lossless_;  // made when first needed, as is none_
  std::optional<FrameEncoder> none_;
  std::vector<std::byte> spare_;
};

}  // namespace kvserve
