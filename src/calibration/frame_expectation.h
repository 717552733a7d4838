// What frames of the calibration texts look like to the artefact that was made of them.
#pragma once

#include <cstdint>
#include <span>

#include "base/workers.h"
#include "calibration/calibration_source.h"
#include "kvserve/error.h"
#include "kvserve/view.h"
#include "library/calibration_artefact.h"

namespace kvserve {

// Over the whole frames of texts, each the KV of all its tokens as the cache has it. `artefact` has
// whitening (and predictors). Frames run on `workers`. kBadInput when there are less than two
// frames.
[[nodiscard]] Result<FrameExpectation> MeasureExpectation(std::span<const ConstKvView> texts,
                                                          const CalibrationArtefact& artefact,
                                                          std::uint32_t frame_tokens,
                                                          Workers& workers);

// Of texts that nothing was trained on: the kinds to be served (FrameExpectation::in_kind).
[[nodiscard]] Result<FrameExpectation> MeasureInKind(CalibrationSource& texts,
                                                     const CalibrationArtefact& artefact,
                                                     std::uint32_t frame_tokens, Workers& workers);

}  // namespace kvserve
