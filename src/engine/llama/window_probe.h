// Finds which of a context's caches drop old tokens, and after how many.
#pragma once

#include <llama.h>

#include <cstdint>
#include <vector>

#include "engine/llama/state_blob.h"
#include "kvserve/error.h"

namespace kvserve {

// Loads made-up cells at chosen positions into sequence 0 and looks which of them a saved state
// still has: cells outside the window are left out, so no token needs to be evaluated. `shape` is a
// state of this context with cells in every cache. Returns `window` or 0 (all tokens) per cache;
// kUnsupported when a cache behaves like neither (chunked or symmetric windows). Leaves sequence 0
// empty.
[[nodiscard]] Result<std::vector<std::uint32_t>> ProbeWindows(llama_context* context,
                                                              const SequenceState& shape,
                                                              std::uint32_t window);

}  // namespace kvserve
