// The machine a result was measured on, as every JSON document states it.
#pragma once

#include <string>

namespace kvserve::tool {

struct Machine {
  std::string cpu;     // model name; "unknown" where the system does not say
  std::string isa;     // that the kernels use in this process
  unsigned cores = 0;  // usable by this process
  std::string gpu;     // model of the first GPU; empty: none
};

[[nodiscard]] Machine DescribeMachine();

}  // namespace kvserve::tool
