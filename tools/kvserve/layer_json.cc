#include "layer_json.h"

#include "tensorfile/kv_file.h"

namespace kvserve::tool {

nlohmann::json LayerJson(const LayerGeometry& layer) {
  return {{"kv_heads", layer.kv_heads},
          {"k_dim", layer.k_dim},
          {"v_dim", layer.v_dim},
          {"window_tokens", layer.window_tokens},
          {"rope_style", RopeStyleName(layer.rope_style)},
          {"rope_theta", layer.rope_theta}};
}

}  // namespace kvserve::tool
