#include "library/calibration_artefact.h"

#include <algorithm>
#include <mutex>

#include "library/whitening_matrices.h"

namespace kvserve {
namespace {

std::size_t PlaneIndex(std::uint32_t layer, PlaneKind kind) {
  return 2 * std::size_t{layer} + (kind == PlaneKind::kValue ? 1 : 0);
}

const KarhunenLoeve* Find(const std::vector<KarhunenLoeve>& planes, std::size_t index) {
  return index < planes.size() && planes[index].columns != 0 ? &planes[index] : nullptr;
}

tl::unexpected<Error> NoWhitening() {
  return MakeError(ErrorCode::kMismatch, "the calibration artefact has no whitening of this plane");
}

}  // namespace

struct CalibrationArtefact::WhiteningMatrices {
  std::once_flag forward_once;
  std::optional<std::vector<float>> forward;
  std::once_flag inverse_once;
  std::vector<float> inverse;
};

CalibrationArtefact::CalibrationArtefact(Contents contents, Fingerprint fingerprint)
    : contents_(std::move(contents)),
      fingerprint_(fingerprint),
      packed_predictors_(contents_.predictors.size()),
      matrices_(std::make_unique<WhiteningMatrices[]>(contents_.whitening.size())) {}

CalibrationArtefact::~CalibrationArtefact() = default;

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

const Whitening* CalibrationArtefact::whitening(std::uint32_t layer, PlaneKind kind) const {
  const std::size_t index = PlaneIndex(layer, kind);
  const auto& planes = contents_.whitening;
  return index < planes.size() && planes[index].columns != 0 ? &planes[index] : nullptr;
}

const Predictor* CalibrationArtefact::predictor(std::uint32_t layer, PlaneKind kind) const {
  const std::size_t index = PlaneIndex(layer, kind);
  const auto& planes = contents_.predictors;
  return index < planes.size() && planes[index].inputs != 0 ? &planes[index] : nullptr;
}

const CodeTables* CalibrationArtefact::code_tables() const {
  return contents_.code_tables ? &*contents_.code_tables : nullptr;
}

Result<std::span<const float>> CalibrationArtefact::whitening_forward(std::uint32_t layer,
                                                                      PlaneKind kind) const {
  const Whitening* const found = whitening(layer, kind);
  if (found == nullptr) return NoWhitening();
  WhiteningMatrices& matrices = matrices_[PlaneIndex(layer, kind)];
  std::call_once(matrices.forward_once, [&] { matrices.forward = InvertedWhitening(*found); });
  if (!matrices.forward) {
    return MakeError(ErrorCode::kCorruptData,
                     "calibration artefact: a whitening matrix is singular");
  }
  return std::span<const float>(*matrices.forward);
}

Result<std::span<const float>> CalibrationArtefact::whitening_inverse(std::uint32_t layer,
                                                                      PlaneKind kind) const {
  const Whitening* const found = whitening(layer, kind);
  if (found == nullptr) return NoWhitening();
  WhiteningMatrices& matrices = matrices_[PlaneIndex(layer, kind)];
  std::call_once(matrices.inverse_once, [&] { matrices.inverse = DequantizedWhitening(*found); });
  return std::span<const float>(matrices.inverse);
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
