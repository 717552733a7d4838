#include "stages/frame_artefact.h"

#include <string>

#include "base/try.h"

namespace kvserve {
namespace {

Status Mismatch(const std::string& what) {
  return MakeError(ErrorCode::kMismatch, "calibration artefact: " + what);
}

std::string ShapeText(const LayerGeometry& layer) {
  return "[" + std::to_string(layer.kv_heads) + ", " + std::to_string(layer.k_dim) + " and " +
         std::to_string(layer.v_dim) + "]";
}

bool SameShape(const LayerGeometry& a, const LayerGeometry& b) {
  return a.kv_heads == b.kv_heads && a.k_dim == b.k_dim && a.v_dim == b.v_dim;
}

}  // namespace

Status CheckArtefactGiven(const Chain& chain, const CalibrationArtefact* given) {
  if (given != nullptr || !chain.needs_artefact()) return {};
  return MakeError(ErrorCode::kInvalidArgument,
                   "profile needs a calibration artefact, and none was given");
}

Status CheckArtefactNamed(const FrameHeader& header, const Chain& chain,
                          const CalibrationArtefact* given) {
  if (chain.needs_artefact() == header.artefact.empty()) {
    return MakeError(ErrorCode::kCorruptData,
                     chain.needs_artefact()
                         ? "frame: its stages need a calibration artefact, and it names none"
                         : "frame: names calibration artefact " + header.artefact.hex() +
                               ", which none of its stages needs");
  }
  if (header.artefact.empty()) return {};
  if (given == nullptr) {
    return MakeError(ErrorCode::kMismatch, "frame: needs calibration artefact " +
                                               header.artefact.hex() + ", and none was given");
  }
  if (given->fingerprint() == header.artefact) return {};
  return MakeError(ErrorCode::kMismatch, "frame: needs calibration artefact " +
                                             header.artefact.hex() + " where " +
                                             given->fingerprint().hex() + " was given");
}

Status CheckArtefactFits(const FrameHeader& header, const CalibrationArtefact& artefact) {
  const auto& contents = artefact.contents();
  if (!contents.model.empty() && !header.model.empty() && contents.model != header.model) {
    return Mismatch("is of model " + contents.model.hex() + " where the frame is of " +
                    header.model.hex());
  }
  const auto& layers = contents.geometry.layers;
  if (layers.empty()) return {};
  if (layers.size() != header.model_layers) {
    return Mismatch("has " + std::to_string(layers.size()) + " layers where the model has " +
                    std::to_string(header.model_layers));
  }
  for (const FrameLayer& layer : header.layers) {
    const LayerGeometry& calibrated = layers[layer.layer];
    if (SameShape(calibrated, layer.geometry)) continue;
    return Mismatch("layer " + std::to_string(layer.layer) + " has heads and dims " +
                    ShapeText(calibrated) + " where the frame has " + ShapeText(layer.geometry));
  }
  return {};
}

Status CheckArtefactServes(const FrameHeader& header, const CalibrationArtefact& artefact) {
  KVSERVE_TRY(CheckArtefactFits(header, artefact));
  const KvGeometry& calibrated = artefact.contents().geometry;
  if (calibrated.layers.empty() || calibrated.dtype == header.dtype) return {};
  return Mismatch("is of a " + std::string(DTypeName(calibrated.dtype)) +
                  " cache where this one is " + std::string(DTypeName(header.dtype)));
}

Status CheckArtefactServes(const KvGeometry& geometry, const Fingerprint& model,
                           const CalibrationArtefact& artefact) {
  FrameHeader header;
  header.dtype = geometry.dtype;
  header.model = model;
  header.model_layers = static_cast<std::uint32_t>(geometry.layers.size());
  for (std::uint32_t i = 0; i < header.model_layers; ++i) {
    header.layers.push_back({i, geometry.layers[i], {}});
  }
  return CheckArtefactServes(header, artefact);
}

}  // namespace kvserve
