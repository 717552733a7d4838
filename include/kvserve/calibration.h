// Calibration artefacts: what stages have learnt offline about a model's KV. Frames that need one
// name it by its fingerprint.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "kvserve/error.h"
#include "kvserve/geometry.h"

namespace kvserve {

class CalibrationArtefact;  // immutable; used by many threads at once

// Parses the bytes of a .calib file (docs/CALIBRATION.md), which may be hostile: nothing is
// allocated from a length that was not checked. kCorruptData names the section that is wrong;
// kUnsupported an unknown version, feature or required section; kResourceExhausted no memory.
[[nodiscard]] Result<std::shared_ptr<const CalibrationArtefact>> ParseCalibration(
    std::span<const std::byte> bytes);
// Reads and parses a file; kBadInput if it cannot be read or is not a regular file.
[[nodiscard]] Result<std::shared_ptr<const CalibrationArtefact>> LoadCalibration(
    const std::string& path);

// XXH3-128 of the file, which frames carry.
[[nodiscard]] const Fingerprint& CalibrationFingerprint(const CalibrationArtefact& artefact);

}  // namespace kvserve
