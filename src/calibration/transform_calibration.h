// From the KV of all texts to what the chain whiten | predict | steps | contexts needs.
#pragma once

#include <cstdint>

#include "calibration/sensitivity.h"
#include "calibration/transform/calibration_texts.h"
#include "calibration/transform/transform_training.h"
#include "kvserve/error.h"
#include "kvserve/profile.h"
#include "library/calibration_artefact.h"

namespace kvserve {

struct TransformCalibration {
  Sensitivity sensitivity;
  Profile selectors;                 // those of the chain; its other stages do not matter
  std::uint32_t frame_tokens = 256;  // of the frames that are weighed
  std::uint32_t horizon = 384;       // tokens behind a text that queries are expected in
  unsigned threads = 1;              // 1..256; changes nothing of the result
  TransformOptions training;
};

// Sets attention_profile (of layers with query statistics), whitening, predictors, code_tables and
// frame_expectation of `contents`, which has statistics of the same texts.
[[nodiscard]] Status CalibrateTransform(const CalibrationTexts& texts,
                                        const TransformCalibration& options,
                                        CalibrationArtefact::Contents& contents);

}  // namespace kvserve
