#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/convert/convert.h"
#include "kernels/convert/finite_convert.h"

namespace kvserve {

bool ToFloatFiniteRef(DType dtype, std::span<const std::byte> in, std::span<float> out) {
  ToFloatRef(dtype, in, out);
  return std::all_of(out.begin(), out.end(), [](float value) { return std::isfinite(value); });
}

bool FromFloatFiniteRef(DType dtype, std::span<const float> in, std::span<std::byte> out) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const std::size_t bytes = DTypeBytes(dtype);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (std::isnan(in[i])) return false;
    const float value = std::clamp(in[i], -kLargest, kLargest);
    (void)FromFloatRef(dtype, {&value, 1}, out.subspan(i * bytes, bytes));
  }
  return true;
}

}  // namespace kvserve
