// Largest single allocation of a test program since a mark: shows that a claimed length was not
// believed. Link allocation_watch.cc, which replaces operator new.
#pragma once

#include <cstddef>

namespace kvserve::testing {

void ResetLargestAllocation();
[[nodiscard]] std::size_t LargestAllocation();

}  // namespace kvserve::testing
