// Checks the Authorization header of an HTTP request against the node's token.
#pragma once

#include <string_view>

#include "net/token.h"

namespace kvserve {

// True for "Bearer <token>". Compares keyed digests, so that the time tells nothing of the token.
[[nodiscard]] bool IsAuthorized(const AuthToken& token, std::string_view header);

}  // namespace kvserve
