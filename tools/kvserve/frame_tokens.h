// The argument of --frame-tokens.
#pragma once

#include <cstdint>
#include <string>

#include "kvserve/error.h"

namespace kvserve::tool {

// "all", which is kMaxTokens, or a number of tokens in 1..kMaxTokens; kInvalidArgument otherwise.
[[nodiscard]] Result<std::uint32_t> ParseFrameTokens(const std::string& text);

}  // namespace kvserve::tool
