// A made-up calibration artefact for tests.
#pragma once

#include <memory>

#include "library/calibration_artefact.h"

namespace kvserve::testing {

// Statistics of every plane and two classes of tables for every alphabet. Equal geometries (but for
// the dtype and positions, which frames may change) give equal artefacts.
[[nodiscard]] std::shared_ptr<const CalibrationArtefact> SampleArtefact(const KvGeometry& geometry);

}  // namespace kvserve::testing
