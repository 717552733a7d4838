// From KV to a calibration artefact.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "calibration/calibration_source.h"
#include "calibration/transform_calibration.h"
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
  // KLT of each head, and over all heads of planes of at most joint_columns columns (n columns cost
  // 4 n^2 bytes in the artefact and 8 n^2 on the way).
  bool klt = true;
  std::size_t joint_columns = 1024;
  // These two need a source that shows queries.
  bool query_statistics = false;
  bool head_scores = false;
  // Whitening, predictors, code tables and what goes with them; keeps all KV in memory. Needs
  // query_statistics when its selectors do.
  std::optional<TransformCalibration> transform;
  // Tokens visited and how many there are, over all passes.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// Statistics of every channel, entropy classes of every alphabet that occurs, and what else the
// options ask for. One pass over the source, and a second one when a profile needs an artefact
// itself: it gets all but the entropy classes. kBadInput when the source has less than two tokens
// beside token 0, or no queries where they are asked for; else errors of source and profiles.
[[nodiscard]] Result<CalibrationArtefact::Contents> Calibrate(CalibrationSource& source,
                                                              const CalibrationOptions& options);

}  // namespace kvserve
