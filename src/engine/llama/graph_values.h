// Intermediate values of a graph, for callbacks of its evaluation.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kvserve {

// Graphs name every stage of a layer's keys "Kcur<suffix>-<layer>", and likewise its queries
// "Qcur". The layer of such a tensor; nothing for others, and for views and reshapes of them, which
// keep the name and the values.
[[nodiscard]] std::optional<std::uint32_t> LayerNamed(const ggml_tensor& tensor,
                                                      std::string_view prefix);

// In the order of its dimensions, the first one fastest; empty unless it is float32 in host memory.
[[nodiscard]] std::vector<float> ValuesOf(const ggml_tensor& tensor);

}  // namespace kvserve
