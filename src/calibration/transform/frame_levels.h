// What frames of the calibration texts look like, for the guard against drift.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calibration/transform/calibration_texts.h"
#include "library/transform_contents.h"

namespace kvserve {

// Rows from `begin` on that are of one frame.
struct FrameRows {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// The frames of each text without its first tokens, and without what is shorter than half a frame.
[[nodiscard]] std::vector<FrameRows> FramesOf(const CalibrationTexts& texts,
                                              std::uint32_t first_tokens,
                                              std::uint32_t frame_tokens);

// [row, column]: components in units, and what prediction leaves of them in other units, which
// `residual_unit` is; without a predictor it leaves all. Frames of zeros count nothing.
[[nodiscard]] FrameExpectation::Plane FrameLevels(std::span<const FrameRows> frames,
                                                  std::span<const float> components,
                                                  std::span<const float> residuals,
                                                  double residual_unit, std::size_t columns,
                                                  bool predicted);

}  // namespace kvserve
