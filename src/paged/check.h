// Checks that the calls on paged caches share.
#pragma once

#include <cstdint>
#include <span>

#include "kvserve/paged.h"

namespace kvserve {

// 1 block or more, below kNoBlock; 1..kMaxBlockTokens slots in each.
inline constexpr std::uint32_t kMaxBlockTokens = 65536;
[[nodiscard]] Status CheckBlocks(std::uint32_t blocks, std::uint32_t block_tokens);

// Whether the table of `layer`'s group has a block of the cache for each of `tokens`.
// kInvalidArgument names the layer and the block.
[[nodiscard]] Status CheckTable(const PagedCache& cache, std::uint32_t layer,
                                std::span<const BlockTable> tables, TokenRange tokens);

}  // namespace kvserve
