// From KV to a calibration artefact.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "calibration/calibration_source.h"
#include "kvserve/error.h"
#include "kvserve/profile.h"
#include "library/calibration_artefact.h"

namespace kvserve {

struct CalibrationOptions {
  // Their quantizers give the symbols that entropy classes are made of; codecs do not matter.
  std::vector<Profile> profiles;
  // Frames to cut the KV into, since ranges and so symbols depend on their size; 1 or more each.
  std::vector<std::uint32_t> frame_tokens = {256};
  std::size_t max_classes = 64;  // per alphabet, 1..64
  // Tokens visited and how many there are, over all passes.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// Statistics of every channel, and entropy classes of every alphabet that occurs. One pass over the
// source, and a second one when a profile needs calibrated statistics itself. kBadInput when the
// source has less than two tokens beside token 0; else errors of source and profiles.
[[nodiscard]] Result<CalibrationArtefact::Contents> Calibrate(CalibrationSource& source,
                                                              const CalibrationOptions& options);

}  // namespace kvserve
