// Learns how an engine rotates keys from keys before and after the rotation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvserve/geometry.h"

namespace kvserve {

struct RopeFit {
  RopeStyle style = RopeStyle::kNone;
  float theta = 0.0F;
};

// `before` and `after` are [token, head, dim] at positions 0, 1, 2, ...; at least two tokens.
// Returns the style for which rotating pair i by position * theta^(-2i/dim) reproduces `after` to
// 1e-3 of its norm; kNone when nothing was rotated; nothing when neither holds (scaled frequencies,
// part of the dimensions only).
[[nodiscard]] std::optional<RopeFit> FitRope(std::span<const float> before,
                                             std::span<const float> after, std::uint32_t heads,
                                             std::uint32_t dim, float theta);

}  // namespace kvserve
