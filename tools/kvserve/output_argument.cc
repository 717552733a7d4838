#include "output_argument.h"

#include <filesystem>
#include <system_error>

namespace kvserve::tool {

Status CheckOutputIsNoInput(const std::string& output, std::initializer_list<std::string> inputs) {
  for (const std::string& input : inputs) {
    std::error_code unknown;  // one of them does not exist: then they are not the same
    if (!std::filesystem::equivalent(input, output, unknown) || unknown) continue;
    return MakeError(ErrorCode::kInvalidArgument,
                     "output " + output + " is the input " + input + ": it would be replaced");
  }
  return {};
}

}  // namespace kvserve::tool
