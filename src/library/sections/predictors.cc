// Predictors of every plane's components from planes that are coded before it.
#include <algorithm>
#include <cmath>
#include <string>

#include "library/sections/packed_values.h"
#include "library/sections/section.h"
#include "library/sections/section_floats.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

bool Compact(const Contents& contents) {
  return std::ranges::any_of(contents.predictors, [&](const Predictor& plane) {
    return plane.inputs != 0 && (plane.bits != kMostMatrixBits || contents.predictor_layers != 1);
  });
}

bool Present(const Contents& contents) {
  return std::ranges::any_of(contents.predictors,
                             [](const Predictor& plane) { return plane.inputs != 0; });
}

void Write(const Contents& contents, ByteWriter& out) {
  for (const Predictor& plane : contents.predictors) {
    out.Put(static_cast<std::uint8_t>(plane.inputs == 0 ? 0 : 1));
    out.PutBytes(std::as_bytes(std::span(plane.scale)));
    out.PutBytes(std::as_bytes(std::span(plane.weights)));
  }
}

void WriteCompact(const Contents& contents, ByteWriter& out) {
  out.Put(static_cast<std::uint8_t>(contents.predictor_layers));
  for (const Predictor& plane : contents.predictors) {
    out.Put(plane.inputs == 0 ? std::uint8_t{0} : plane.bits);
    out.PutBytes(std::as_bytes(std::span(plane.scale)));
    PutPacked(plane.weights, plane.bits, out);
  }
}

Status CheckLayers(std::uint32_t layers) {
  if (layers >= 1 && layers <= kMostPredictorLayers) return {};
  return Wrong("planes are predicted from " + std::to_string(layers) + " layers, not 1.." +
               std::to_string(kMostPredictorLayers));
}

Status ReadPlanes(ByteReader& in, bool compact, Contents& contents) {
  auto& planes = contents.predictors;
  planes.resize(2 * contents.geometry.layers.size());
  if (compact) {
    KVSERVE_ASSIGN(contents.predictor_layers, in.Get<std::uint8_t>());
    KVSERVE_TRY(CheckLayers(contents.predictor_layers));
  }
  for (std::size_t p = 0; p < planes.size(); ++p) {
    if (compact) {
      KVSERVE_ASSIGN(const auto bits, in.Get<std::uint8_t>());
      if (bits == 0) continue;
      KVSERVE_ASSIGN(planes[p].bits, CheckedBits(bits));
    } else {
      KVSERVE_ASSIGN(const bool present, ReadPresent(in));
      if (!present) continue;
    }
    const std::size_t all = PlaneColumns(contents.geometry, p);
    const std::size_t inputs = PredictorInputs(contents.geometry, p, contents.predictor_layers);
    if (all == 0 || inputs == 0) return Wrong(PlaneText(p) + "there is nothing to predict it from");
    planes[p].inputs = static_cast<std::uint32_t>(inputs);
    KVSERVE_TRY(ReadFloats(in, all, planes[p].scale));
    KVSERVE_TRY(compact ? ReadPacked(in, all * inputs, planes[p].bits, planes[p].weights)
                        : ReadValues(in, all * inputs, planes[p].weights));
  }
  return {};
}

Status CheckPlane(const Predictor& plane, std::size_t all, std::size_t inputs) {
  if (plane.inputs == 0 && plane.scale.empty() && plane.weights.empty()) return {};
  if (plane.inputs == 0 || plane.inputs != inputs || plane.scale.size() != all ||
      plane.weights.size() != all * inputs) {
    return Wrong("sizes are not those of " + std::to_string(all) + " components of " +
                 std::to_string(inputs) + " inputs");
  }
  for (std::size_t row = 0; row < all; ++row) {
    if (plane.scale[row] >= 0 && std::isfinite(plane.scale[row])) continue;
    return Wrong("scale of component " + std::to_string(row) + " is negative or not finite");
  }
  if (auto fault = MatrixFault(plane.weights, plane.bits); !fault.empty()) return Wrong(fault);
  return {};
}

Status Check(const Contents& contents) {
  KVSERVE_TRY(CheckLayers(contents.predictor_layers));
  return CheckPlanes(contents.geometry, contents.predictors, Present(contents),
                     [&](const Predictor& plane, std::size_t p) {
                       return CheckPlane(
                           plane, PlaneColumns(contents.geometry, p),
                           PredictorInputs(contents.geometry, p, contents.predictor_layers));
                     });
}

}  // namespace

const CalibrationSection& PredictorsSection() {
  static const CalibrationSection section = {
      .kind = 8,
      .name = "predictors",
      .present = [](const Contents& contents) { return Present(contents) && !Compact(contents); },
      .write = Write,
      .read = [](ByteReader& in, Contents& to) { return ReadPlanes(in, false, to); },
      .check = Check};
  return section;
}

const CalibrationSection& CompactPredictorsSection() {
  static const CalibrationSection section = {
      .kind = 8,
      .name = "predictors",
      .version = 2,
      .required = true,
      .present = Compact,
      .write = WriteCompact,
      .read = [](ByteReader& in, Contents& to) { return ReadPlanes(in, true, to); },
      .check = Check};
  return section;
}

}  // namespace kvserve
