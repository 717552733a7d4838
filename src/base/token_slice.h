// The part of a piece of KV that belongs to some of its tokens.
#pragma once

#include "kvserve/view.h"

namespace kvserve {

// A view of the same memory: of every layer the rows of `tokens` that it holds, which may be none.
// `tokens` is inside view.tokens. Any strides.
[[nodiscard]] ConstKvView SliceTokens(const ConstKvView& view, TokenRange tokens);

}  // namespace kvserve
