// What the attention profile of an artefact says between its knots.
#pragma once

#include <cstdint>

#include "kvserve/geometry.h"
#include "library/calibration_artefact.h"

namespace kvserve {

// Of one plane; refers to the profile, which CheckCalibration has accepted. All values are log2 of
// sensitivities.
class AttentionLevels {
 public:
  AttentionLevels(const AttentionProfile& profile, const AttentionProfile::Plane& plane)
      : profile_(profile), plane_(plane) {}

  // Mean of the last keys of `seen`, 1 or more, when the prompt ends `ahead` tokens after them.
  // Linear in log2(seen) and log2(ahead + 64). Beyond the knots of seen as 1 / seen^2, as the
  // softmax of keys that are all alike; beyond those of ahead as at the last one.
  [[nodiscard]] double Level(double seen, double ahead) const;
  // At a distance from the prompt's end. Linear in log2(distance + 32); constant beyond the knots.
  [[nodiscard]] double Recency(double distance) const;
  // Mean over tokens of Recency, the prompt ending at `end` >= tokens.end. Of many tokens evenly
  // spaced ones stand for all; 0 without tokens.
  [[nodiscard]] double MeanRecency(TokenRange tokens, double end) const;
  // Mean to be expected of these tokens when they are the last of `seen` keys and the prompt ends
  // at `end`.
  [[nodiscard]] double Expected(TokenRange tokens, double seen, double end) const;

 private:
  const AttentionProfile& profile_;
  const AttentionProfile::Plane& plane_;
};

}  // namespace kvserve
