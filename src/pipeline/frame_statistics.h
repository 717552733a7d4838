// What a frame looks like to a calibration artefact, and how far that is from its texts.
#pragma once

#include <span>
#include <vector>

#include "base/arena.h"
#include "kvserve/error.h"
#include "kvserve/view.h"
#include "library/calibration_artefact.h"

namespace kvserve {

// Of one plane over some of the frame's tokens, in octaves.
struct PlaneStatistics {
  bool measured = false;
  double energy = 0;  // log2 of the mean square of whitened values
  double gain = 0;    // log2 of that over the mean square of what the predictor leaves
};

// How many evenly spaced tokens of a frame are looked at. Tokens 0 to 3 of a request, which are
// like no others, are not.
inline constexpr std::uint32_t kStatisticsTokens = 16;

// [2 * layer + kind], in `arena`; of planes that the view has tokens of and the artefact a
// whitening. A plane without a predictor has gain 0. kCorruptData for a whitening that cannot be
// inverted; values that are not finite leave their plane out. Bit-identical on every instruction
// set but for the C library's log2.
[[nodiscard]] Result<std::span<const PlaneStatistics>> MeasureFrame(
    const ConstKvView& view, const CalibrationArtefact& artefact, Arena& arena);

// Of one plane from the expectation, in standard deviations.
struct PlaneDistance {
  bool compared = false;
  bool predicted = false;  // the expectation knows a gain
  double energy = 0;
  double gain = 0;
  double residual = 0;  // energy less gain: what prediction leaves
};
// [2 * layer + kind], in `arena`.
[[nodiscard]] std::span<const PlaneDistance> DistancesOf(std::span<const PlaneStatistics> frame,
                                                         const FrameExpectation& expectation,
                                                         Arena& arena);

// Over all planes, 0 without planes to compare.
struct FrameDistance {
  double energy = 0;        // root mean square
  double gain = 0;          // likewise
  double key_loss = 0;      // mean over predicted keys of what they have lost of the gain
  double key_residual = 0;  // mean over predicted keys
};
[[nodiscard]] FrameDistance Summarize(std::span<const PlaneDistance> planes);

}  // namespace kvserve
