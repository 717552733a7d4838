// What evaluate scores: records of --data, or those that are part of the program.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "evaluation/record.h"
#include "kvserve/calibration.h"
#include "kvserve/error.h"

namespace kvserve::tool {

// Halves of any data set, the same on every machine: one to search on, one to test what was found.
enum class Split { kAll, kSearch, kTest };

// "all", "search" or "test"; kInvalidArgument otherwise.
[[nodiscard]] Result<Split> ParseSplit(const std::string& text);

// The records of the files, or the shipped ones without files. kBadInput names file and line, or
// says that nothing is left of the split.
[[nodiscard]] Result<std::vector<Record>> ReadEvaluationData(std::span<const std::string> paths,
                                                             Split split);

// Names of those files that the artefact says it was calibrated on; empty without an artefact.
[[nodiscard]] std::vector<std::string> CalibratedOn(const CalibrationArtefact* artefact,
                                                    std::span<const std::string> paths);

}  // namespace kvserve::tool
