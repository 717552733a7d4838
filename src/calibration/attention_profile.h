// What sensitivity of tokens is normal for a model, for the selector `expected`.
#pragma once

#include <cstdint>
#include <span>

#include "base/workers.h"
#include "kvserve/error.h"
#include "kvserve/view.h"
#include "library/calibration_artefact.h"

namespace kvserve {

// Means over texts, each the KV of all its tokens from the first on, as the cache has it; a layer
// may hold only the last ones. `queries` is [layer] of the texts' geometry; layers without them get
// no planes. Knots are powers of two up to the longest text. Layers run on `workers`; per layer and
// text about 10 times the text's tokens are weighed. kBadInput when no text has 8 tokens or a value
// is not finite.
[[nodiscard]] Result<AttentionProfile> MeasureAttention(std::span<const ConstKvView> texts,
                                                        std::span<const QueryStatistics> queries,
                                                        std::uint32_t horizon, Workers& workers);

}  // namespace kvserve
