// Which frames are pinned: every stage, alone and in the chains people use, over the shapes and
// dtypes that have gone wrong before.
#pragma once

#include <ostream>
#include <span>
#include <string_view>

#include "kvserve/geometry.h"

namespace kvserve::testing {

struct GoldenCase {
  std::string_view name;  // file name without ending
  std::string_view shape;
  DType dtype;
  std::string_view profile;
  bool foreign_codec = false;  // the symbols' bytes are another library's and vary with its version
  bool calibrated = false;     // needs artefacts/<shape>-<dtype>.calib
  bool compact = false;        // or <shape>-<dtype>-compact.calib, whose matrices have few bits

  friend std::ostream& operator<<(std::ostream& out, const GoldenCase& golden) {
    return out << golden.shape << ' ' << DTypeName(golden.dtype) << ' ' << golden.profile;
  }
};

[[nodiscard]] std::span<const GoldenCase> GoldenCases();

}  // namespace kvserve::testing
