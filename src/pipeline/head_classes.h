// Which heads of a layer count as streaming heads, which low precision harms least.
#pragma once

#include <cstdint>
#include <vector>

#include "kvserve/error.h"
#include "library/calibration_artefact.h"

namespace kvserve {

struct HeadShare {
  double low = 0.0;  // 0..1, of the heads of every layer, or of the model
  bool of_model = false;
};

inline constexpr std::uint8_t kHighHead = 0;
inline constexpr std::uint8_t kLowHead = 1;

// Classes of the heads of one layer, [head]: low are those with the lowest retrieval scores of the
// artefact; of equal scores the first. Empty for a layer without scores, whose heads are all high.
// kInvalidArgument when the artefact has no scores at all, kMismatch when they are of other heads.
[[nodiscard]] Status ClassifyHeads(const HeadShare& share, const CalibrationArtefact* artefact,
                                   std::uint32_t layer, std::uint32_t heads,
                                   std::vector<std::uint8_t>& classes);

}  // namespace kvserve
