// The -o of commands that write a file.
#pragma once

#include <initializer_list>
#include <string>

#include "kvserve/error.h"

namespace kvserve::tool {

// kInvalidArgument when the output is one of the inputs, by whatever name or link: it would replace
// what it was made from. An input may be empty, or no file at all.
[[nodiscard]] Status CheckOutputIsNoInput(const std::string& output,
                                          std::initializer_list<std::string> inputs);

}  // namespace kvserve::tool
