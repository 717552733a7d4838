#include <algorithm>
#include <cmath>

#include "kernels/convert/magnitude.h"

namespace kvserve {

bool MagnitudesWithinRef(float bound, std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [bound](float value) { return std::fabs(value) <= bound; });
}

}  // namespace kvserve
