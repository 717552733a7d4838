// How the KV of a request is cut into frames; sending and receiving side must agree on it.
#pragma once

#include <cstdint>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/view.h"

namespace kvserve {

// Frame `index` holds token frame index / groups and layer group index % groups. Token frames begin
// at multiples of frame_tokens, the last one ends with the request; groups begin at multiples of
// layers_per_frame. Of a window layer a frame holds the tokens that are in the window when the
// request ends.
class FrameGrid {
 public:
  struct Cell {
    TokenRange tokens;
    std::uint32_t first_layer = 0;
    std::uint32_t layers = 0;
  };

  // `geometry` outlives the grid. layers_per_frame 0: all. kInvalidArgument: tokens outside
  // 1..kMaxTokens, no tokens per frame; kResourceExhausted: above kMaxFrames frames.
  static constexpr std::uint32_t kMaxFrames = 1U << 22;
  [[nodiscard]] static Result<FrameGrid> Create(const KvGeometry& geometry, std::uint32_t tokens,
                                                std::uint32_t frame_tokens,
                                                std::uint32_t layers_per_frame);

  [[nodiscard]] std::uint32_t frames() const { return token_frames_ * groups_; }
  [[nodiscard]] std::uint32_t groups() const { return groups_; }
  [[nodiscard]] std::uint32_t tokens() const { return tokens_; }
  [[nodiscard]] std::uint32_t frame_tokens() const { return frame_tokens_; }
  [[nodiscard]] std::uint32_t layers_per_frame() const { return layers_per_frame_; }
  [[nodiscard]] const KvGeometry& geometry() const { return *geometry_; }

  [[nodiscard]] Cell At(std::uint32_t index) const;
  // Whether the frame holds a token that a receiver wants who has those before `first_token`.
  [[nodiscard]] bool IsWanted(std::uint32_t index, std::uint32_t first_token) const;
  [[nodiscard]] std::uint32_t CountWanted(std::uint32_t first_token) const;
  // What the frame holds of each of its layers.
  [[nodiscard]] std::vector<KvBuffer::LayerTokens> Held(std::uint32_t index) const;
  [[nodiscard]] std::uint64_t RawBytes(std::uint32_t index) const;

 private:
  FrameGrid() = default;

  const KvGeometry* geometry_ = nullptr;
  std::uint32_t tokens_ = 0;
  std::uint32_t frame_tokens_ = 0;
  std::uint32_t layers_per_frame_ = 0;
  std::uint32_t token_frames_ = 0;
  std::uint32_t groups_ = 0;
};

}  // namespace kvserve
