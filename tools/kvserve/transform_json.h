// What an artefact's transforms are, for calibrate and inspect.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

#include "library/calibration_artefact.h"

namespace kvserve::tool {

[[nodiscard]] std::size_t PredictedPlanes(const CalibrationArtefact::Contents& contents);
// Null without code tables.
[[nodiscard]] nlohmann::json TransformJson(const CalibrationArtefact::Contents& contents);

}  // namespace kvserve::tool
