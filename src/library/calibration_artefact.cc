#include "library/calibration_artefact.h"

#include <algorithm>

namespace kvserve {

const ChannelStatistics* CalibrationArtefact::statistics(std::uint32_t layer,
                                                         PlaneKind kind) const {
  const std::size_t index = 2 * std::size_t{layer} + (kind == PlaneKind::kValue ? 1 : 0);
  if (index >= contents_.statistics.size() || contents_.statistics[index].mean.empty()) {
    return nullptr;
  }
  return &contents_.statistics[index];
}

const EntropyClasses* CalibrationArtefact::entropy(std::uint32_t alphabet) const {
  const auto found =
      std::find_if(contents_.entropy.begin(), contents_.entropy.end(),
                   [&](const EntropyClasses& classes) { return classes.alphabet == alphabet; });
  return found == contents_.entropy.end() ? nullptr : &*found;
}

const Fingerprint& CalibrationFingerprint(const CalibrationArtefact& artefact) {
  return artefact.fingerprint();
}

}  // namespace kvserve
