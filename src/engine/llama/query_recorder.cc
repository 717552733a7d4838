// A rotation may overwrite what it rotates, so the values before it are kept from the step before.
#include "engine/llama/query_recorder.h"

#include "engine/llama/graph_values.h"

namespace kvserve {

bool QueryRecorder::Callback(ggml_tensor* tensor, bool ask, void* user_data) {
  auto& recorder = *static_cast<QueryRecorder*>(user_data);
  if (!recorder.active_) return !ask;
  const auto number = LayerNamed(*tensor, "Qcur");
  const auto layer = number ? recorder.layers_.find(*number) : recorder.layers_.end();
  const bool wanted = layer != recorder.layers_.end();
  if (ask) return wanted;
  if (wanted) recorder.Record(*tensor, layer->second);
  return true;
}

void QueryRecorder::SetLayers(const KvGeometry& geometry,
                              const std::vector<std::uint32_t>& model_layers) {
  for (std::uint32_t i = 0; i < model_layers.size(); ++i) {
    layers_[model_layers[i]] = {i, geometry.layers[i].k_dim};
  }
}

void QueryRecorder::Begin(std::uint32_t first_position, std::size_t tokens) {
  first_position_ = first_position;
  tokens_ = tokens;
  waiting_.clear();
  active_ = tap_ != nullptr;
}

void QueryRecorder::Record(const ggml_tensor& tensor, const Layer& layer) {
  const auto before = waiting_.find(layer.index);
  if (tensor.op != GGML_OP_ROPE) {
    // Steps after the rotation (a scale) are attention's own.
    if (before != waiting_.end() && before->second.empty()) return;
    waiting_[layer.index] = ValuesOf(tensor);
    return;
  }
  if (before == waiting_.end() || before->second.empty()) return;
  Hand(layer, before->second, false);
  Hand(layer, ValuesOf(tensor), true);
  before->second.clear();  // done
}

void QueryRecorder::Hand(const Layer& layer, const std::vector<float>& values, bool rotated) const {
  const std::size_t head_values = tokens_ * layer.dim;
  if (values.empty() || values.size() % head_values != 0) return;
  tap_(layer.index, first_position_, values,
       static_cast<std::uint32_t>(values.size() / head_values), layer.dim, rotated);
}

void QueryRecorder::End(bool evaluated) {
  for (const auto& [number, layer] : layers_) {
    const auto waiting = waiting_.find(layer.index);
    if (!active_ || !evaluated || waiting == waiting_.end() || waiting->second.empty()) continue;
    Hand(layer, waiting->second, false);
    Hand(layer, waiting->second, true);
  }
  waiting_.clear();
  active_ = false;
}

}  // namespace kvserve
