// Geometries and views of the caller's planes.
#include <algorithm>

#include "capi/capi.h"

namespace kvserve::capi {
namespace {

PlaneView ToPlane(const kvserve_plane& plane, const KvGeometry& geometry,
                  const LayerGeometry& layer, TokenRange tokens, std::uint32_t dim) {
  PlaneView view;
  view.data = static_cast<std::byte*>(plane.data);
  view.dtype = geometry.dtype;
  view.tokens = tokens.size();
  view.heads = layer.kv_heads;
  view.dim = dim;
  view.token_stride = plane.token_stride;
  view.head_stride = plane.head_stride;
  view.dim_stride = plane.dim_stride;
  return view;
}

kvserve_plane FromPlane(const PlaneView& plane) {
  return {plane.data, plane.token_stride, plane.head_stride, plane.dim_stride};
}

Result<LayerView> ToLayerView(const kvserve_layer_view& given, const KvGeometry& geometry) {
  if (given.layer >= geometry.layers.size()) {
    return MakeError(ErrorCode::kInvalidArgument, "layer " + std::to_string(given.layer) +
                                                      " is not among the model's " +
                                                      std::to_string(geometry.layers.size()));
  }
  const LayerGeometry& shape = geometry.layers[given.layer];
  const TokenRange tokens{given.token_begin, given.token_end};
  if (tokens.begin > tokens.end) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "layer " + std::to_string(given.layer) + ": its tokens end before they begin");
  }
  LayerView layer{given.layer, tokens, ToPlane(given.k, geometry, shape, tokens, shape.k_dim), {}};
  if (!shape.single_plane()) layer.v = ToPlane(given.v, geometry, shape, tokens, shape.v_dim);
  return layer;
}

}  // namespace

Result<KvView> ToView(const kvserve_view* view) {
  if (auto status = Need("a view", view); !status) return tl::unexpected(status.error());
  const auto given = Read(view, sizeof(kvserve_view));
  if (!given) return tl::unexpected(given.error());
  if (given->geometry == nullptr || (given->layers == nullptr && given->layer_count > 0)) {
    return MakeError(ErrorCode::kInvalidArgument, "a view without geometry or layers");
  }
  KvView result;
  result.geometry = &given->geometry->geometry;
  result.tokens = {given->token_begin, given->token_end};
  for (std::size_t i = 0; i < given->layer_count; ++i) {
    auto layer = ToLayerView(given->layers[i], *result.geometry);
    if (!layer) return tl::unexpected(layer.error());
    result.layers.push_back(*layer);
  }
  return result;
}

Fingerprint ToFingerprint(const kvserve_fingerprint& fingerprint) {
  Fingerprint result;
  std::copy(std::begin(fingerprint.bytes), std::end(fingerprint.bytes), result.bytes.begin());
  return result;
}

LayerGeometry ToLayer(const kvserve_layer& layer) {
  return {layer.kv_heads,
          layer.k_dim,
          layer.v_dim,
          layer.window_tokens,
          static_cast<RopeStyle>(layer.rope_style),
          layer.rope_theta};
}

kvserve_layer FromLayer(const LayerGeometry& layer) {
  return {layer.kv_heads,
          layer.k_dim,
          layer.v_dim,
          layer.window_tokens,
          static_cast<std::uint32_t>(layer.rope_style),
          layer.rope_theta};
}

kvserve_layer_view FromLayerView(const LayerView& layer) {
  return {layer.layer, layer.tokens.begin, layer.tokens.end,
          0,           FromPlane(layer.k), FromPlane(layer.v)};
}

}  // namespace kvserve::capi

extern "C" {

using namespace kvserve;
using namespace kvserve::capi;

size_t kvserve_dtype_bytes(kvserve_dtype dtype) {
  return dtype < 0 || dtype > 255 ? 0 : DTypeBytes(static_cast<DType>(dtype));
}

kvserve_status kvserve_geometry_create(kvserve_dtype dtype, const kvserve_layer* layers,
                                       size_t layer_count, kvserve_geometry** out) {
  return Run([&]() -> Status {
    if (auto status = Need("layers and a place for the geometry", layers, out); !status) {
      return status;
    }
    if (kvserve_dtype_bytes(dtype) == 0) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "dtype id " + std::to_string(dtype) + " is unknown");
    }
    if (layer_count > kMaxLayers) {
      return MakeError(
          ErrorCode::kInvalidArgument,
          "layers " + std::to_string(layer_count) + " is outside 1.." + std::to_string(kMaxLayers));
    }
    auto geometry = std::make_unique<kvserve_geometry>();
    geometry->geometry.dtype = static_cast<DType>(dtype);
    for (std::size_t i = 0; i < layer_count; ++i) {
      if (layers[i].rope_style > KVSERVE_ROPE_HALVES) {
        return MakeError(ErrorCode::kInvalidArgument,
                         "layer " + std::to_string(i) + ": rope_style " +
                             std::to_string(layers[i].rope_style) + " is outside 0..2");
      }
      geometry->geometry.layers.push_back(ToLayer(layers[i]));
    }
    if (auto status = CheckGeometry(geometry->geometry); !status) return status;
    *out = geometry.release();
    return {};
  });
}

void kvserve_geometry_destroy(kvserve_geometry* geometry) {
  delete geometry;
}

kvserve_dtype kvserve_geometry_dtype(const kvserve_geometry* geometry) {
  return geometry == nullptr ? 0 : static_cast<kvserve_dtype>(geometry->geometry.dtype);
}

size_t kvserve_geometry_layer_count(const kvserve_geometry* geometry) {
  return geometry == nullptr ? 0 : geometry->geometry.layers.size();
}

kvserve_status kvserve_geometry_layer(const kvserve_geometry* geometry, size_t layer,
                                      kvserve_layer* out) {
  return Run([&]() -> Status {
    if (auto status = Need("a geometry and a place for the layer", geometry, out); !status) {
      return status;
    }
    if (layer >= geometry->geometry.layers.size()) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "layer " + std::to_string(layer) + " is not among the model's " +
                           std::to_string(geometry->geometry.layers.size()));
    }
    *out = FromLayer(geometry->geometry.layers[layer]);
    return {};
  });
}

}  // extern "C"
