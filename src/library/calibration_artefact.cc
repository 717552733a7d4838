#include "library/calibration_artefact.h"

#include <algorithm>

namespace kvserve {
namespace {

std::size_t PlaneIndex(std::uint32_t layer, PlaneKind kind) {
  return 2 * std::size_t{layer} + (kind == PlaneKind::kValue ? 1 : 0);
}

const KarhunenLoeve* Find(const std::vector<KarhunenLoeve>& planes, std::size_t index) {
  return index < planes.size() && planes[index].columns != 0 ? &planes[index] : nullptr;
}

}  // namespace

const ChannelStatistics* CalibrationArtefact::statistics(std::uint32_t layer,
                                                         PlaneKind kind) const {
  const std::size_t index = PlaneIndex(layer, kind);
  if (index >= contents_.statistics.size() || contents_.statistics[index].mean.empty()) {
    return nullptr;
  }
  return &contents_.statistics[index];
}

const KarhunenLoeve* CalibrationArtefact::klt_heads(std::uint32_t layer, PlaneKind kind) const {
  return Find(contents_.klt_heads, PlaneIndex(layer, kind));
}

const KarhunenLoeve* CalibrationArtefact::klt_joint(std::uint32_t layer, PlaneKind kind) const {
  return Find(contents_.klt_joint, PlaneIndex(layer, kind));
}

const QueryStatistics* CalibrationArtefact::query_statistics(std::uint32_t layer) const {
  const auto& layers = contents_.query_statistics;
  return layer < layers.size() && layers[layer].heads != 0 ? &layers[layer] : nullptr;
}

const std::vector<float>* CalibrationArtefact::head_scores(std::uint32_t layer) const {
  const auto& layers = contents_.head_scores;
  return layer < layers.size() && !layers[layer].empty() ? &layers[layer] : nullptr;
}

const AttentionProfile::Plane* CalibrationArtefact::attention(std::uint32_t layer,
                                                              PlaneKind kind) const {
  const auto& planes = contents_.attention_profile.planes;
  const std::size_t index = PlaneIndex(layer, kind);
  return index < planes.size() && !planes[index].level.empty() ? &planes[index] : nullptr;
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
