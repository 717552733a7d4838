#include "engine/llama/graph_values.h"

#include <ggml-backend.h>

#include <charconv>
#include <cstring>

namespace kvserve {

std::optional<std::uint32_t> LayerNamed(const ggml_tensor& tensor, std::string_view prefix) {
  const std::string_view name(tensor.name);
  if (!name.starts_with(prefix) || tensor.op == GGML_OP_RESHAPE || tensor.op == GGML_OP_PERMUTE) {
    return std::nullopt;
  }
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  std::uint32_t layer = 0;
  const auto parsed = std::from_chars(name.data() + dash + 1, name.data() + name.size(), layer);
  if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) return std::nullopt;
  return layer;
}

std::vector<float> ValuesOf(const ggml_tensor& tensor) {
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

}  // namespace kvserve
