#include "evaluation/captured_queries.h"

#include "base/try.h"

namespace kvserve {

std::uint64_t CapturedQueries::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [number, layer] : layers_) bytes += layer.values.size() * sizeof(float);
  return bytes;
}

QueryView CapturedQueries::View(std::uint32_t tokens) const {
  QueryView view;
  view.tokens = {0, tokens};
  for (const auto& [number, layer] : layers_) {
    view.layers.push_back({number, layer.heads, layer.dim, layer.values});
  }
  return view;
}

Status CapturedQueries::Start(Engine& engine) {
  layers_.clear();
  return engine.TapQueries([this](std::uint32_t number, std::uint32_t /*first_position*/,
                                  std::span<const float> values, std::uint32_t heads,
                                  std::uint32_t dim, bool rotated) {
    if (!rotated) return;
    Layer& layer = layers_[number];
    layer.heads = heads;
    layer.dim = dim;
    layer.values.insert(layer.values.end(), values.begin(), values.end());
  });
}

void CapturedQueries::Stop(Engine& engine) {
  [[maybe_unused]] const Status ended = engine.TapQueries(nullptr);
}

}  // namespace kvserve
