// Tokens as ranges.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvserve/geometry.h"

namespace kvserve {

// Adds the tokens whose flag is not 0; flags[i] is that of token begin + i. Ranges that meet become
// one, also with the last one there.
inline void AppendMarked(std::span<const std::uint8_t> flags, std::uint32_t begin,
                         std::vector<TokenRange>& ranges) {
  for (std::uint32_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == 0) continue;
    const std::uint32_t token = begin + i;
    if (ranges.empty() || ranges.back().end != token) {
      ranges.push_back({token, token + 1});
    } else {
      ++ranges.back().end;
    }
  }
}

}  // namespace kvserve
