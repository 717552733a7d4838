#include "pipeline/testing/query_sample.h"

namespace kvserve::testing {

QuerySample::QuerySample(const KvGeometry& geometry, TokenRange tokens) {
  view_.tokens = {tokens.begin, tokens.end + 3};
  for (std::uint32_t layer = 0; layer < geometry.layers.size(); ++layer) {
    const std::uint32_t heads = 2 * geometry.layers[layer].kv_heads;
    const std::uint32_t dim = geometry.layers[layer].k_dim;
    auto& values = values_.emplace_back(std::size_t{view_.tokens.size()} * heads * dim);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t mixed = (i + 7 * layer + tokens.begin) * 2654435761U % 1000003U;
      values[i] = static_cast<float>(mixed % 64) / 32.0F - 1.0F;
    }
    view_.layers.push_back({layer, heads, dim, values});
  }
}

}  // namespace kvserve::testing
