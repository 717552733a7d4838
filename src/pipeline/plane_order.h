// The planes of a chunk in coding order: K then V of each layer, K alone when single-plane.
#pragma once

#include <string>
#include <vector>

#include "kvserve/view.h"

namespace kvserve {

template <typename Byte>
struct OrderedPlane {
  std::uint32_t layer = 0;
  PlaneKind kind = PlaneKind::kKey;
  TokenRange tokens;
  BasicPlaneView<Byte> view;
};

// Replaces `planes`, whose memory is kept.
template <typename Byte>
void CodingOrder(const BasicKvView<Byte>& view, std::vector<OrderedPlane<Byte>>& planes) {
  planes.clear();
  planes.reserve(2 * view.layers.size());
  for (const auto& layer : view.layers) {
    planes.push_back({layer.layer, PlaneKind::kKey, layer.tokens, layer.k});
    if (!view.geometry->layers[layer.layer].single_plane()) {
      planes.push_back({layer.layer, PlaneKind::kValue, layer.tokens, layer.v});
    }
  }
}

template <typename Byte>
[[nodiscard]] std::vector<OrderedPlane<Byte>> CodingOrder(const BasicKvView<Byte>& view) {
  std::vector<OrderedPlane<Byte>> planes;
  CodingOrder(view, planes);
  return planes;
}

// "layer 3 K", for messages.
[[nodiscard]] inline std::string PlaneName(std::uint32_t layer, PlaneKind kind) {
  return "layer " + std::to_string(layer) + (kind == PlaneKind::kKey ? " K" : " V");
}

}  // namespace kvserve
