#include "output_argument.h"

#include <filesystem>
#include <system_error>
#include <utility>

namespace kvserve::tool {

Status CheckOutputIsNoInput(const std::string& output, std::initializer_list<std::string> inputs) {
  for (const std::string& input : inputs) {
    std::error_code unknown;  // one of them does not exist: then they are not the same
    if (!std::filesystem::equivalent(input, output, unknown) || unknown) continue;
    std::string message = "output " + output;
    message.append(" is the input ").append(input).append(": it would be replaced");
    return MakeError(ErrorCode::kInvalidArgument, std::move(message));
  }
  return {};
}

}  // namespace kvserve::tool
