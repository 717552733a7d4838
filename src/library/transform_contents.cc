#include "library/transform_contents.h"

#include <algorithm>

namespace kvserve {

std::size_t PredictorInputs(const KvGeometry& geometry, std::size_t plane, std::uint32_t layers) {
  std::size_t inputs = 0;
  const std::size_t layer = plane / 2;
  for (std::size_t i = layer - std::min<std::size_t>(layer, layers); i < layer; ++i) {
    const LayerGeometry& before = geometry.layers[i];
    inputs += std::size_t{before.kv_heads} * before.k_dim;
    inputs += std::size_t{before.kv_heads} * before.v_dim;
  }
  if (plane % 2 == 1) {
    const LayerGeometry& own = geometry.layers[plane / 2];
    inputs += std::size_t{own.kv_heads} * own.k_dim;
  }
  return inputs;
}

}  // namespace kvserve
