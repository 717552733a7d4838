// What calibrate says about the artefact that it has made.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "calibration_data.h"
#include "command.h"
#include "library/calibration_artefact.h"

namespace kvserve::tool {

struct CalibrateSummary {
  const std::vector<CalibrationFile>& files;
  const CalibrationArtefact::Contents& contents;
  std::span<const std::byte> bytes;  // of the artefact
  double seconds = 0;
  std::vector<std::string> left_out;  // what could be computed from other data
};

// One JSON document, or a table.
void PrintSummary(const Invocation& invocation, const CalibrateSummary& summary);

}  // namespace kvserve::tool
