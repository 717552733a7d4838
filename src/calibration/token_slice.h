// A part of a chunk's tokens as a chunk of its own, over the same memory.
#pragma once

#include "kvserve/view.h"

namespace kvserve {

// `tokens` lies inside the chunk's; each layer keeps what it holds of them.
[[nodiscard]] ConstKvView SliceTokens(const ConstKvView& chunk, TokenRange tokens);

}  // namespace kvserve
