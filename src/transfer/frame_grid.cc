#include "transfer/frame_grid.h"

#include <algorithm>
#include <string>

namespace kvserve {
namespace {

std::uint32_t CeilDivide(std::uint32_t count, std::uint32_t by) {
  return (count - 1) / by + 1;
}

}  // namespace

Result<FrameGrid> FrameGrid::Create(const KvGeometry& geometry, std::uint32_t tokens,
                                    std::uint32_t frame_tokens, std::uint32_t layers_per_frame) {
  if (tokens == 0 || tokens > kMaxTokens || frame_tokens == 0 || geometry.layers.empty()) {
    return MakeError(ErrorCode::kInvalidArgument, std::to_string(tokens) +
                                                      " tokens cannot be cut into frames of " +
                                                      std::to_string(frame_tokens));
  }
  const auto layers = static_cast<std::uint32_t>(geometry.layers.size());
  FrameGrid grid;
  grid.geometry_ = &geometry;
  grid.tokens_ = tokens;
  grid.frame_tokens_ = frame_tokens;
  grid.layers_per_frame_ = layers_per_frame == 0 ? layers : std::min(layers_per_frame, layers);
  grid.token_frames_ = CeilDivide(tokens, frame_tokens);
  grid.groups_ = CeilDivide(layers, grid.layers_per_frame_);
  const std::uint64_t frames = std::uint64_t{grid.token_frames_} * grid.groups_;
  if (frames > kMaxFrames) {
    return MakeError(
        ErrorCode::kResourceExhausted,
        std::to_string(frames) + " frames are above the limit of " + std::to_string(kMaxFrames));
  }
  return grid;
}

FrameGrid::Cell FrameGrid::At(std::uint32_t index) const {
  const std::uint32_t begin = index / groups_ * frame_tokens_;
  const std::uint32_t first_layer = index % groups_ * layers_per_frame_;
  const auto layers = static_cast<std::uint32_t>(geometry_->layers.size());
  const std::uint32_t end = tokens_ - begin > frame_tokens_ ? begin + frame_tokens_ : tokens_;
  return {{begin, end}, first_layer, std::min(layers_per_frame_, layers - first_layer)};
}

bool FrameGrid::IsWanted(std::uint32_t index, std::uint32_t first_token) const {
  const Cell cell = At(index);
  const auto wanted = [&](const LayerGeometry& layer) {
    const TokenRange held = TokensHeld(layer, cell.tokens, tokens_);
    return std::max(held.begin, first_token) < held.end;
  };
  const auto first = geometry_->layers.begin() + cell.first_layer;
  return std::any_of(first, first + cell.layers, wanted);
}

std::uint32_t FrameGrid::CountWanted(std::uint32_t first_token) const {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < frames(); ++i) count += IsWanted(i, first_token) ? 1 : 0;
  return count;
}

std::vector<KvBuffer::LayerTokens> FrameGrid::Held(std::uint32_t index) const {
  const Cell cell = At(index);
  std::vector<KvBuffer::LayerTokens> held;
  held.reserve(cell.layers);
  for (std::uint32_t i = cell.first_layer; i < cell.first_layer + cell.layers; ++i) {
    held.push_back({i, TokensHeld(geometry_->layers[i], cell.tokens, tokens_)});
  }
  return held;
}

std::uint64_t FrameGrid::RawBytes(std::uint32_t index) const {
  std::uint64_t bytes = 0;
  for (const auto& [layer, tokens] : Held(index)) {
    bytes += LayerBytes(geometry_->layers[layer], geometry_->dtype, tokens.size());
  }
  return bytes;
}

}  // namespace kvserve
