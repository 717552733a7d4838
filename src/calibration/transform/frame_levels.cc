#include "calibration/transform/frame_levels.h"

#include <algorithm>
#include <cmath>

namespace kvserve {
namespace {

double Energy(std::span<const float> rows) {
  double sum = 0;
  for (const float value : rows) sum += double{value} * value;
  return sum;
}

struct Spread {
  double sum = 0;
  double squares = 0;
  double count = 0;
  void Add(double value) {
    sum += value;
    squares += value * value;
    count += 1;
  }
  [[nodiscard]] float mean() const { return static_cast<float>(sum / std::max(count, 1.0)); }
  [[nodiscard]] float deviation() const {
    const double mean = sum / std::max(count, 1.0);
    return static_cast<float>(
        std::sqrt(std::max(0.0, squares / std::max(count, 1.0) - mean * mean)));
  }
};

}  // namespace

std::vector<FrameRows> FramesOf(const CalibrationTexts& texts, std::uint32_t first_tokens,
                                std::uint32_t frame_tokens) {
  std::vector<FrameRows> frames;
  for (const auto& text : texts.texts()) {
    for (std::uint32_t begin = 0; begin < text.tokens; begin += frame_tokens) {
      const std::uint32_t end = std::min(text.tokens, begin + frame_tokens);
      if (end - begin < (frame_tokens + 1) / 2) continue;
      const std::uint32_t first = std::max(begin, first_tokens);
      if (first < end) frames.push_back({text.first_row + first, text.first_row + end});
    }
  }
  return frames;
}

FrameExpectation::Plane FrameLevels(std::span<const FrameRows> frames,
                                    std::span<const float> components,
                                    std::span<const float> residuals, double residual_unit,
                                    std::size_t columns, bool predicted) {
  Spread energy;
  Spread gain;
  for (const FrameRows& frame : frames) {
    const std::size_t begin = frame.begin * columns;
    const std::size_t size = (frame.end - frame.begin) * columns;
    const double whole = Energy(components.subspan(begin, size));
    const double left = Energy(residuals.subspan(begin, size)) * residual_unit * residual_unit;
    if (!(whole > 0) || !(left > 0)) continue;
    energy.Add(std::log2(whole / static_cast<double>(size)));
    if (predicted) gain.Add(std::log2(whole / left));
  }
  return {energy.mean(), energy.deviation(), gain.mean(), gain.deviation()};
}

}  // namespace kvserve
