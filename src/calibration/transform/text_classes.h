// The token classes that selectors give the calibration texts.
#pragma once

#include <cstdint>
#include <vector>

#include "base/workers.h"
#include "calibration/transform/calibration_texts.h"
#include "kvserve/error.h"
#include "kvserve/profile.h"
#include "library/calibration_artefact.h"

namespace kvserve {

// [2 * layer + kind][row], as frames of `frame_tokens` of each text would have them whose sender
// knows the text's length and remembers its frames. Tokens that are left out of a plane get the
// coarsest class. Only the selectors of `profile` matter; nominal classes without any. Errors of
// the selectors, which get `artefact`.
[[nodiscard]] Result<std::vector<std::vector<std::uint8_t>>> ClassifyTexts(
    const CalibrationTexts& texts, const Profile& profile, const CalibrationArtefact& artefact,
    std::uint32_t frame_tokens, Workers& workers);

}  // namespace kvserve
