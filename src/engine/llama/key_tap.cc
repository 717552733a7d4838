#include "engine/llama/key_tap.h"

#include <ggml-backend.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

namespace kvserve {
namespace {

// Graphs name every stage of the keys "Kcur<suffix>-<layer>"; views of them add " (view)" and the
// like and are skipped, reshapes keep name and values and are skipped by their op.
std::optional<std::uint32_t> KeyLayer(const ggml_tensor& tensor) {
  const std::string_view name(tensor.name);
  if (!name.starts_with("Kcur") || tensor.op == GGML_OP_RESHAPE || tensor.op == GGML_OP_PERMUTE) {
    return std::nullopt;
  }
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  std::uint32_t layer = 0;
  const auto parsed = std::from_chars(name.data() + dash + 1, name.data() + name.size(), layer);
  if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) return std::nullopt;
  return layer;
}

std::vector<float> Values(const ggml_tensor& tensor) {
  std::vector<float> values;
  if (tensor.type != GGML_TYPE_F32 || tensor.data == nullptr || tensor.ne[3] != 1) return values;
  const ggml_tensor& owner = tensor.view_src != nullptr ? *tensor.view_src : tensor;
  if (owner.buffer != nullptr && !ggml_backend_buffer_is_host(owner.buffer)) return values;
  values.reserve(static_cast<std::size_t>(ggml_nelements(&tensor)));
  const auto* base = static_cast<const std::byte*>(tensor.data);
  for (std::int64_t i2 = 0; i2 < tensor.ne[2]; ++i2) {
    for (std::int64_t i1 = 0; i1 < tensor.ne[1]; ++i1) {
      for (std::int64_t i0 = 0; i0 < tensor.ne[0]; ++i0) {
        float value = 0;
        const auto at = static_cast<std::size_t>(i2) * tensor.nb[2] +
                        static_cast<std::size_t>(i1) * tensor.nb[1] +
                        static_cast<std::size_t>(i0) * tensor.nb[0];
        std::memcpy(&value, base + at, sizeof value);
        values.push_back(value);
      }
    }
  }
  return values;
}

}  // namespace

bool KeyTap::Callback(ggml_tensor* tensor, bool ask, void* user_data) {
  const auto layer = KeyLayer(*tensor);
  if (ask) return layer.has_value();
  if (layer) static_cast<KeyTap*>(user_data)->Record(*tensor, *layer);
  return true;
}

void KeyTap::Record(const ggml_tensor& tensor, std::uint32_t layer) {
  TappedKeys& keys = layers_[layer];
  keys.before = std::move(keys.after);
  keys.after = Values(tensor);
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
