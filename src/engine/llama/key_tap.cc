#include "engine/llama/key_tap.h"

#include <cstring>
#include <utility>

#include "engine/llama/graph_values.h"

namespace kvserve {

bool KeyTap::Callback(ggml_tensor* tensor, bool ask, void* user_data) {
  const auto layer = LayerNamed(*tensor, "Kcur");
  if (ask) return layer.has_value();
  if (layer) static_cast<KeyTap*>(user_data)->Record(*tensor, *layer);
  return true;
}

void KeyTap::Record(const ggml_tensor& tensor, std::uint32_t layer) {
  TappedKeys& keys = layers_[layer];
  keys.before = std::move(keys.after);
  keys.after = ValuesOf(tensor);
  if (tensor.ne[2] >
      1) {  // [dim, head, token]; a projection that is still [dim * head, token] is not
    keys.dim = static_cast<std::uint32_t>(tensor.ne[0]);
    keys.heads = static_cast<std::uint32_t>(tensor.ne[1]);
  }
  keys.rotated = tensor.op == GGML_OP_ROPE;
  if (!keys.rotated) return;
  // Words of ggml's rope operator: 1 is the number of rotated dimensions, 5 the base. FitRope
  // checks both against the values.
  std::int32_t dimensions = 0;
  std::memcpy(&dimensions, &tensor.op_params[1], sizeof dimensions);
  std::memcpy(&keys.theta, &tensor.op_params[5], sizeof keys.theta);
  keys.whole_head = dimensions == tensor.ne[0];
}

}  // namespace kvserve
