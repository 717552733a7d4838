// Whether a chain, a frame and a calibration artefact belong together.
#pragma once

#include "frame/frame.h"
#include "kvserve/error.h"
#include "library/calibration_artefact.h"
#include "pipeline/chain.h"

namespace kvserve {

// For an encoder: kInvalidArgument when a stage needs an artefact and none is given.
[[nodiscard]] Status CheckArtefactGiven(const Chain& chain, const CalibrationArtefact* given);

// For a decoder: kCorruptData when the frame names an artefact that no stage needs, or none though
// a stage needs one; kMismatch when it names another than the one given.
[[nodiscard]] Status CheckArtefactNamed(const FrameHeader& header, const Chain& chain,
                                        const CalibrationArtefact* given);

// Model and shapes, as far as both sides say them: kMismatch names both values. The cache's dtype
// and the positions' encoding may differ from those that were calibrated on.
[[nodiscard]] Status CheckArtefactFits(const FrameHeader& header,
                                       const CalibrationArtefact& artefact);

}  // namespace kvserve
