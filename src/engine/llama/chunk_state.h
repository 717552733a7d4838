// Chunks of KV as sequence states: which rows go where.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/llama/cache_layout.h"
#include "engine/llama/state_blob.h"
#include "kvserve/view.h"

namespace kvserve {

// Copies the tokens that each layer of `out` holds (out is resized already) from `state`, which has
// `layout`. kBadInput names the first token that the state lacks.
[[nodiscard]] Status CopyFromState(const SequenceState& state, const CacheLayout& layout,
                                   KvBuffer& out);

// Checks that `chunk` has this layout's geometry, all of its layers, every token in all-token
// layers and a common tail in the layers of a window cache. kMismatch names the first difference.
[[nodiscard]] Status CheckChunk(const ConstKvView& chunk, const CacheLayout& layout);

// A state with the chunk's tokens at their positions; rows point into the view, or into `gathered`
// for planes that are not contiguous. `chunk` passed CheckChunk.
[[nodiscard]] SequenceState StateOf(const ConstKvView& chunk, const CacheLayout& layout,
                                    std::int32_t sequence,
                                    std::vector<std::vector<std::byte>>& gathered);

}  // namespace kvserve
