// The parameter by which transforms leave K or V as they are.
#pragma once

#include <cstdint>
#include <string_view>

#include "pipeline/stage.h"

namespace kvserve {

// Of K, and with id + 1 of V; on unless said otherwise.
[[nodiscard]] constexpr ParameterInfo OnParameter(std::uint8_t id, std::string_view help) {
  return {.id = id,
          .name = "on",
          .type = ParameterType::kBoolean,
          .low = 0,
          .high = 1,
          .default_k = 1,
          .default_v = 1,
          .per_plane = true,
          .help = help};
}

}  // namespace kvserve
