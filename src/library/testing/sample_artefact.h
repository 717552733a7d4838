// A made-up calibration artefact for tests.
#pragma once

#include <memory>

#include "library/calibration_artefact.h"

namespace kvserve::testing {

// Statistics, KLT, attention and head scores of every plane, queries of every layer with two heads
// per KV head, two classes of tables for every alphabet, and what AddTransformSample gives, with
// predictors that look at two layers; no KLT and whitening beyond 640 columns. Equal geometries
// (but for the dtype and positions, which frames may change) give equal artefacts.
[[nodiscard]] std::shared_ptr<const CalibrationArtefact> SampleArtefact(const KvGeometry& geometry);

}  // namespace kvserve::testing
