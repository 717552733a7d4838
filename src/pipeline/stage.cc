#include "pipeline/stage.h"

#include <algorithm>
#include <string>

#include "base/try.h"

namespace kvserve {
namespace {

tl::unexpected<Error> NotImplemented(const char* what) {
  return MakeError(ErrorCode::kInternal, std::string("a stage does not implement ") + what);
}

}  // namespace

double Settings::value(std::uint8_t id) const {
  for (const ParameterValue& parameter : values_) {
    if (parameter.id == id) return parameter.value;
  }
  return 0.0;
}

double Settings::value(std::uint8_t id, PlaneKind plane) const {
  const auto parameter =
      std::find_if(info_->parameters.begin(), info_->parameters.end(),
                   [&](const ParameterInfo& candidate) { return candidate.id == id; });
  const bool per_plane = parameter != info_->parameters.end() && parameter->per_plane;
  return value(static_cast<std::uint8_t>(id + (per_plane && plane == PlaneKind::kValue ? 1 : 0)));
}

std::uint32_t Settings::integer(std::uint8_t id) const {
  return static_cast<std::uint32_t>(value(id));
}

std::uint32_t Settings::integer(std::uint8_t id, PlaneKind plane) const {
  return static_cast<std::uint32_t>(value(id, plane));
}

ScaleSource Transform::scale_source(PlaneKind /*kind*/) const {
  return needs_artefact() ? ScaleSource::kCalibrated : ScaleSource::kUnit;
}

ScaleSource Quantizer::scale_source(PlaneKind /*kind*/) const {
  return needs_artefact() ? ScaleSource::kCalibrated : ScaleSource::kUnit;
}

ScaleSource Codec::scale_source(PlaneKind /*kind*/) const {
  return needs_artefact() ? ScaleSource::kCalibrated : ScaleSource::kUnit;
}

Status Transform::Forward(const PlaneContext& plane, RealPlane values, ByteWriter& /*side*/) const {
  if (rows() == nullptr) return NotImplemented("Forward");
  KVSERVE_ASSIGN(
      const PlaneState* state,
      rows()->Open(plane, {values.tokens, values.heads, values.dim}, Direction::kForward));
  rows()->ForwardRows(state, 0, values);
  return {};
}

Status Transform::Inverse(const PlaneContext& plane, RealPlane values, ByteReader& /*side*/) const {
  if (rows() == nullptr) return NotImplemented("Inverse");
  KVSERVE_ASSIGN(
      const PlaneState* state,
      rows()->Open(plane, {values.tokens, values.heads, values.dim}, Direction::kInverse));
  rows()->InverseRows(state, 0, values);
  return {};
}

Status Quantizer::Quantize(const PlaneContext& plane, ConstRealPlane values, SymbolPlane& symbols,
                           ByteWriter& side) const {
  const RowQuantizer* by_rows = rows();
  if (by_rows == nullptr) return NotImplemented("Quantize");
  PlaneState* state = by_rows->Begin(plane, {values.tokens, values.heads, values.dim});
  by_rows->Observe(state, 0, values);
  KVSERVE_TRY(by_rows->Finish(state, side));
  by_rows->QuantizeRows(state, 0, values, symbols.symbols);
  return {};
}

Status Quantizer::Classify(const FrameContext& /*frame*/,
                           std::span<const std::vector<float>> /*weights*/,
                           std::span<SymbolPlane> /*planes*/) const {
  return {};
}

Status Quantizer::WriteClasses(const FrameContext& /*frame*/, std::span<const SymbolPlane> planes,
                               ByteWriter& /*out*/) const {
  for (const SymbolPlane& plane : planes) {
    if (!plane.token_classes.empty()) return NotImplemented("WriteClasses");
  }
  return {};
}

Status Quantizer::ReadClasses(const FrameContext& /*frame*/, std::span<SymbolPlane> /*planes*/,
                              ByteReader& /*in*/) const {
  return {};
}

Status Quantizer::Dequantize(const PlaneContext& plane, const SymbolPlane& symbols,
                             ByteReader& side, RealPlane values) const {
  const RowQuantizer* by_rows = rows();
  if (by_rows == nullptr) return NotImplemented("Dequantize");
  KVSERVE_ASSIGN(const PlaneState* state,
                 by_rows->Open(plane, {values.tokens, values.heads, values.dim}, symbols, side));
  by_rows->DequantizeRows(state, 0, symbols.symbols, values);
  return {};
}

Status Quantizer::QuantizeNative(const PlaneContext& /*plane*/, const ConstPlaneView& /*values*/,
                                 SymbolPlane& /*symbols*/, ByteWriter& /*side*/) const {
  return NotImplemented("QuantizeNative");
}

Status Quantizer::DequantizeNative(const PlaneContext& /*plane*/, const SymbolPlane& /*symbols*/,
                                   ByteReader& /*side*/, const PlaneView& /*values*/) const {
  return NotImplemented("DequantizeNative");
}

Result<SymbolWriter*> Codec::Begin(const FrameContext& /*frame*/,
                                   std::span<const SymbolPlane> /*planes*/,
                                   ByteWriter& /*out*/) const {
  return nullptr;
}

Result<const SymbolReader*> Codec::Open(const FrameContext& /*frame*/, ByteReader& /*in*/,
                                        std::span<const SymbolPlane> /*planes*/) const {
  return nullptr;
}

}  // namespace kvserve
