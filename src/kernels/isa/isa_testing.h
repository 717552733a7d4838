// Test glue: runs a check on every instruction set that the machine has.
#pragma once

#include <gtest/gtest.h>

#include "kernels/isa/isa.h"

namespace kvserve {

template <typename Check>
void ForEachIsa(const Check& check) {
  const std::string before(ActiveIsa());
  for (const auto name : AvailableIsas()) {
    SCOPED_TRACE(std::string(name));
    ASSERT_TRUE(SetIsa(name));
    check();
  }
  ASSERT_TRUE(SetIsa(before));
}

}  // namespace kvserve
