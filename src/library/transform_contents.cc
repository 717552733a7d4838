#include "library/transform_contents.h"

namespace kvserve {

std::size_t PredictorInputs(const KvGeometry& geometry, std::size_t plane) {
  std::size_t inputs = 0;
  if (plane >= 2) {
    const LayerGeometry& before = geometry.layers[plane / 2 - 1];
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
