#include <string>

#include "base/try.h"
#include "library/calibration_file.h"

namespace kvserve {
namespace {

Result<std::uint32_t> GetNumber(ByteReader& in, const char* field) {
  KVSERVE_ASSIGN(const auto value, in.GetVarint());
  if (value > UINT32_MAX) {  // CheckGeometry knows the narrower ranges
    return MakeError(ErrorCode::kCorruptData, std::string(field) + " is out of range");
  }
  return static_cast<std::uint32_t>(value);
}

Result<LayerGeometry> ReadLayer(ByteReader& in) {
  LayerGeometry layer;
  KVSERVE_ASSIGN(layer.kv_heads, GetNumber(in, "kv_heads"));
  KVSERVE_ASSIGN(layer.k_dim, GetNumber(in, "k_dim"));
  KVSERVE_ASSIGN(layer.v_dim, GetNumber(in, "v_dim"));
  KVSERVE_ASSIGN(layer.window_tokens, GetNumber(in, "window_tokens"));
  KVSERVE_ASSIGN(const auto style, in.Get<std::uint8_t>());
  if (style > static_cast<std::uint8_t>(RopeStyle::kHalves)) {
    return MakeError(ErrorCode::kCorruptData,
                     "rope_style " + std::to_string(style) + " is unknown");
  }
  layer.rope_style = static_cast<RopeStyle>(style);
  if (layer.rope_style != RopeStyle::kNone) {
    KVSERVE_ASSIGN(layer.rope_theta, in.Get<float>());
  }
  return layer;
}

}  // namespace

void WriteCalibrationGeometry(const KvGeometry& geometry, ByteWriter& out) {
  out.Put(static_cast<std::uint8_t>(geometry.dtype));
  out.PutVarint(geometry.layers.size());
  for (std::size_t begin = 0; begin < geometry.layers.size();) {
    const LayerGeometry& layer = geometry.layers[begin];
    std::size_t end = begin + 1;
    while (end < geometry.layers.size() && geometry.layers[end] == layer) ++end;
    out.PutVarint(end - begin);
    out.PutVarint(layer.kv_heads);
    out.PutVarint(layer.k_dim);
    out.PutVarint(layer.v_dim);
    out.PutVarint(layer.window_tokens);
    out.Put(static_cast<std::uint8_t>(layer.rope_style));
    if (layer.rope_style != RopeStyle::kNone) out.Put(layer.rope_theta);
    begin = end;
  }
}

Result<KvGeometry> ReadCalibrationGeometry(ByteReader& in) {
  KvGeometry geometry;
  KVSERVE_ASSIGN(const auto dtype, in.Get<std::uint8_t>());
  geometry.dtype = static_cast<DType>(dtype);
  KVSERVE_TRY(CheckDTypeSupported(geometry.dtype));
  KVSERVE_ASSIGN(const auto layers, in.GetVarint());
  if (layers < 1 || layers > kMaxLayers) {
    return MakeError(ErrorCode::kCorruptData, std::to_string(layers) + " layers are out of range");
  }
  while (geometry.layers.size() < layers) {
    KVSERVE_ASSIGN(const auto count, in.GetVarint());
    if (count < 1 || count > layers - geometry.layers.size()) {
      return MakeError(ErrorCode::kCorruptData, "a run of " + std::to_string(count) +
                                                    " layers passes the " + std::to_string(layers) +
                                                    " of the model");
    }
    KVSERVE_ASSIGN(const LayerGeometry layer, ReadLayer(in));
    if (!geometry.layers.empty() && geometry.layers.back() == layer) {
      return MakeError(ErrorCode::kCorruptData, "two runs of layers that touch are alike");
    }
    geometry.layers.insert(geometry.layers.end(), count, layer);
  }
  if (auto status = CheckGeometry(geometry); !status) {
    return MakeError(ErrorCode::kCorruptData, status.error().message);
  }
  return geometry;
}

}  // namespace kvserve
