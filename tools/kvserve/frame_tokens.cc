#include "frame_tokens.h"

#include <charconv>

#include "kvserve/geometry.h"

namespace kvserve::tool {

Result<std::uint32_t> ParseFrameTokens(const std::string& text) {
  if (text == "all") return kMaxTokens;
  std::uint32_t tokens = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  if (error != std::errc() || end != text.data() + text.size() || tokens < 1 ||
      tokens > kMaxTokens) {
    return MakeError(ErrorCode::kInvalidArgument, "--frame-tokens " + text +
                                                      " is not 'all' or a number within 1.." +
                                                      std::to_string(kMaxTokens));
  }
  return tokens;
}

Status CheckTokens(const char* option, std::uint32_t value, std::uint32_t low) {
  if (value >= low && value <= kMaxTokens) return {};
  return MakeError(ErrorCode::kInvalidArgument, std::string(option) + " " + std::to_string(value) +
                                                    " is outside " + std::to_string(low) + ".." +
                                                    std::to_string(kMaxTokens));
}

}  // namespace kvserve::tool
