// What selectors say of the tokens of a frame.
#pragma once

#include <span>
#include <vector>

#include "kvserve/error.h"
#include "pipeline/chain.h"
#include "pipeline/plane_order.h"
#include "pipeline/reference_executor.h"

namespace kvserve {

// Weight 1 for every token of every plane, or no weights for a chain without selectors.
// kInvalidArgument when `memory` is of another chain. `weights` keeps its memory.
[[nodiscard]] Status BeginWeights(const Chain& chain, const EncoderMemory* memory,
                                  std::span<const OrderedPlane<const std::byte>> planes,
                                  std::vector<std::vector<float>>& weights);

// kInternal unless the selectors left weights that stage.h allows.
[[nodiscard]] Status CheckWeights(const Chain& chain,
                                  std::span<const OrderedPlane<const std::byte>> planes,
                                  std::span<const std::vector<float>> weights);

}  // namespace kvserve
