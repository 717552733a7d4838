// Quadratic forms that attention puts on errors of keys and values, known from a forward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvserve/geometry.h"
#include "library/calibration_artefact.h"

namespace kvserve {

// An error e of a key before RoPE moves the logit of a query q that is `distance` tokens behind it
// by e^T R q / sqrt(dim), R the rotation by that distance. [kv_head, dim, dim]: the mean over
// distances below `tokens` of R E[q q^T] R^T, summed over the query heads of a KV head, each times
// its factor in `weights` [query_head]. For a layer with RoPE an even k_dim.
[[nodiscard]] std::vector<float> KeyForms(const LayerGeometry& layer,
                                          const QueryStatistics& queries,
                                          std::span<const double> weights, std::uint32_t tokens);

// An error e of a value moves the residual stream by W e times the attention it gets, W the columns
// of its query head in attention's output weights. [query_head, dim, dim]: W^T W. `weights`
// [output, inputs], inputs = query_head * v_dim.
[[nodiscard]] std::vector<float> OutputForms(std::span<const float> weights, std::size_t inputs,
                                             std::uint32_t v_dim);

}  // namespace kvserve
