// Arguments that count tokens.
#pragma once

#include <cstdint>
#include <string>

#include "kvserve/error.h"

namespace kvserve::tool {

// "all", which is kMaxTokens, or a number of tokens in 1..kMaxTokens; kInvalidArgument otherwise.
[[nodiscard]] Result<std::uint32_t> ParseFrameTokens(const std::string& text);

// Whether the value of `option` is within low..kMaxTokens; kInvalidArgument otherwise.
[[nodiscard]] Status CheckTokens(const char* option, std::uint32_t value, std::uint32_t low);

}  // namespace kvserve::tool
