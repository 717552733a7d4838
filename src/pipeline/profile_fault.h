// Words of errors about the text of a profile.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "kvserve/error.h"

namespace kvserve {

inline tl::unexpected<Error> ProfileFault(std::string message) {
  return MakeError(ErrorCode::kInvalidArgument, "profile: " + std::move(message));
}

inline std::string Quoted(std::string_view name) {
  return "'" + std::string(name) + "'";
}

}  // namespace kvserve
