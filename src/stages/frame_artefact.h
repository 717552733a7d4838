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

// For a decoder: model and shapes, as far as both sides say them; kMismatch names both values. The
// frame names its artefact, so that dtype and the positions' encoding may be what they are.
[[nodiscard]] Status CheckArtefactFits(const FrameHeader& header,
                                       const CalibrationArtefact& artefact);

// For an encoder: the cache's dtype too, which a model's fingerprint covers where it is known. The
// bits and exponents of another dtype have other statistics and tables.
[[nodiscard]] Status CheckArtefactServes(const FrameHeader& header,
                                         const CalibrationArtefact& artefact);
// The same of a whole model, before there is a frame.
[[nodiscard]] Status CheckArtefactServes(const KvGeometry& geometry, const Fingerprint& model,
                                         const CalibrationArtefact& artefact);

}  // namespace kvserve
