// How a prompt is cut into chunks. Both nodes and the local recompute use these borders: the
// engine's arithmetic depends on them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kvserve/geometry.h"

namespace kvserve {

// Tokens whose KV is prefilled: all of the prompt but the last, which the decode node evaluates
// alone.
[[nodiscard]] inline std::uint32_t PrefillTokens(std::size_t prompt_tokens) {
  return prompt_tokens == 0 ? 0 : static_cast<std::uint32_t>(prompt_tokens - 1);
}

[[nodiscard]] inline std::uint32_t ChunkCount(std::uint32_t tokens, std::uint32_t chunk_tokens) {
  return static_cast<std::uint32_t>((std::uint64_t{tokens} + chunk_tokens - 1) / chunk_tokens);
}

[[nodiscard]] inline TokenRange ChunkRange(std::uint32_t index, std::uint32_t tokens,
                                           std::uint32_t chunk_tokens) {
  const std::uint64_t begin = std::uint64_t{index} * chunk_tokens;
  return {static_cast<std::uint32_t>(std::min<std::uint64_t>(begin, tokens)),
          static_cast<std::uint32_t>(std::min<std::uint64_t>(begin + chunk_tokens, tokens))};
}

}  // namespace kvserve
