// Made-up whitening, predictors and code tables, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "library/calibration_artefact.h"

namespace kvserve::testing {

// `all` columns in groups of `columns`: a rotation in steps of 1/8, so that values near 1 have
// components of a few units; rounded to 8 bits.
[[nodiscard]] Whitening SampleWhitening(std::size_t all, std::size_t columns);

// Each component is half of one of the inputs (in steps) and a little of some others.
[[nodiscard]] Predictor SamplePredictor(std::size_t components, std::size_t inputs);

// Two-sided geometric tables, two operating points (steps 1 and 2) with contexts of every plane of
// at most `most_columns` columns, and class tables.
[[nodiscard]] CodeTables SampleCodeTables(const KvGeometry& geometry, std::size_t most_columns);

// All of these for planes of at most `most_columns` columns; one group per plane (joint), but
// a group per head for every third plane, and less than a head in planes beyond 256 columns, whose
// inverse would take long.
void AddTransformSample(std::size_t most_columns, CalibrationArtefact::Contents& contents);

// Fewer bits for what there is: whitening 6 and 7 by turns, predictors 2 to 5, correlations of
// queries 8; predictors look at two layers.
void MakeCompact(CalibrationArtefact::Contents& contents);

}  // namespace kvserve::testing
