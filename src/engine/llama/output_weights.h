// Attention's output projections of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kvserve/error.h"

namespace kvserve {

// As Engine::VisitOutputWeights: of each layer of the geometry, whose number in the file is
// `model_layers`, the tensor blk.N.attn_output.weight as float32, its rows times
// blk.N.post_attention_norm.weight where there is one. Reads one layer at a time. kBadInput for a
// file that is damaged or holds another type than libllama knows.
[[nodiscard]] Status VisitGgufOutputWeights(const std::string& path,
                                            const std::vector<std::uint32_t>& model_layers,
                                            const OutputWeightsVisit& visit);

}  // namespace kvserve
