// A few entropy tables that code many planes well.
#pragma once

#include "calibration/symbol_histograms.h"
#include "library/calibration_artefact.h"

namespace kvserve {

inline constexpr std::size_t kMaxEntropyClasses = 64;

// k-means where the distance of a plane to a table is its code length. Deterministic, and the same
// on every machine: integers alone. At least one plane; `alphabet` 2..256. Classes are in the order
// of use: the best single table first, then each time the one that saves most beside those before,
// until less than 1/4096 of the bits would be saved. O(planes * classes * alphabet), of at most
// 8192 planes, evenly taken.
[[nodiscard]] EntropyClasses ClusterHistograms(const SymbolHistograms& histograms,
                                               std::size_t max_classes = kMaxEntropyClasses);

}  // namespace kvserve
