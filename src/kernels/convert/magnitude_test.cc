#include "kernels/convert/magnitude.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

// One value that is out of bounds at any place of spans of any length, on every instruction set.
TEST(Magnitude, FindsWhatIsOutOfBounds) {
  constexpr float kBound = 0x1p100F;
  ForEachIsa([&] {
    for (const std::size_t count : {0U, 1U, 3U, 16U, 17U, 64U, 65U, 200U}) {
      std::vector<float> values(count, -kBound);
      EXPECT_TRUE(MagnitudesWithin(kBound, values));
      EXPECT_TRUE(MagnitudesWithinRef(kBound, values));
      for (const float bad : {std::nextafter(kBound, HUGE_VALF), -0x1p101F, -HUGE_VALF,
                              std::numeric_limits<float>::quiet_NaN(), -std::nanf("")}) {
        for (std::size_t at = 0; at < count; ++at) {
          values[at] = bad;
          EXPECT_FALSE(MagnitudesWithin(kBound, values)) << bad << " at " << at;
          EXPECT_FALSE(MagnitudesWithinRef(kBound, values));
          values[at] = kBound;
        }
      }
    }
  });
}

}  // namespace
}  // namespace kvserve
