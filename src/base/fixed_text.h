// Numbers for people.
#pragma once

#include <cstdio>
#include <string>

namespace kvserve {

// `digits` digits behind the point.
[[nodiscard]] inline std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

}  // namespace kvserve
