// Predictors of every plane's components from planes that are coded before it.
#include <algorithm>
#include <cmath>
#include <string>

#include "library/sections/section.h"
#include "library/sections/section_floats.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

bool Present(const Contents& contents) {
  return std::any_of(contents.predictors.begin(), contents.predictors.end(),
                     [](const Predictor& plane) { return plane.inputs != 0; });
}

void Write(const Contents& contents, ByteWriter& out) {
  for (const Predictor& plane : contents.predictors) {
    out.Put(static_cast<std::uint8_t>(plane.inputs == 0 ? 0 : 1));
    out.PutBytes(std::as_bytes(std::span(plane.scale)));
    out.PutBytes(std::as_bytes(std::span(plane.weights)));
  }
}

Status Read(ByteReader& in, Contents& contents) {
  auto& planes = contents.predictors;
  planes.resize(2 * contents.geometry.layers.size());
  for (std::size_t p = 0; p < planes.size(); ++p) {
    KVSERVE_ASSIGN(const bool present, ReadPresent(in));
    if (!present) continue;
    const std::size_t all = PlaneColumns(contents.geometry, p);
    const std::size_t inputs = PredictorInputs(contents.geometry, p);
    if (all == 0 || inputs == 0) return Wrong(PlaneText(p) + "there is nothing to predict it from");
    planes[p].inputs = static_cast<std::uint32_t>(inputs);
    KVSERVE_TRY(ReadFloats(in, all, planes[p].scale));
    KVSERVE_TRY(ReadValues(in, all * inputs, planes[p].weights));
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
  if (!AllSymmetric(plane.weights)) return Wrong("a weight is -128");
  return {};
}

Status Check(const Contents& contents) {
  return CheckPlanes(contents.geometry, contents.predictors, Present(contents),
                     [&](const Predictor& plane, std::size_t p) {
                       return CheckPlane(plane, PlaneColumns(contents.geometry, p),
                                         PredictorInputs(contents.geometry, p));
                     });
}

}  // namespace

const CalibrationSection& PredictorsSection() {
  static const CalibrationSection section = {.kind = 8,
                                             .name = "predictors",
                                             .present = Present,
                                             .write = Write,
                                             .read = Read,
                                             .check = Check};
  return section;
}

}  // namespace kvserve
