#include "pipeline/plane_floats.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/plane_bytes.h"
#include "kernels/convert/convert.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kNoExponent = 0x7F800000U;  // of infinity and NaN

std::uint32_t Exponent(float value) {
  return std::bit_cast<std::uint32_t>(value) & kNoExponent;
}

// No early exit: one pass of comparisons that vectorises even for SSE2, since planes are usually
// finite.
bool AllFinite(std::span<const float> values) {
  std::uint32_t found = 0;
  for (const float value : values) found |= Exponent(value) == kNoExponent ? 1U : 0U;
  return found == 0;
}

bool HasNan(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(), [](float value) { return value != value; });
}

template <typename Byte>
std::size_t BytesOf(const BasicPlaneView<Byte>& plane) {
  return plane.values() * DTypeBytes(plane.dtype);
}

}  // namespace

void LoadFloats(const ConstPlaneView& plane, std::span<float> out) {
  const std::size_t bytes = BytesOf(plane);
  if (plane.contiguous()) return ToFloat(plane.dtype, {plane.data, bytes}, out);
  std::vector<std::byte> gathered(bytes);
  GatherBytes(plane, gathered);
  ToFloat(plane.dtype, gathered, out);
}

bool StoreFloats(std::span<const float> values, const PlaneView& plane) {
  if (!AllFinite(values)) {
    if (HasNan(values)) return false;
    constexpr float kLargest = std::numeric_limits<float>::max();
    std::vector<float> finite(values.begin(), values.end());  // the kernel would keep infinities
    for (float& value : finite) value = std::clamp(value, -kLargest, kLargest);
    return StoreFloats(finite, plane);
  }
  const std::size_t bytes = BytesOf(plane);
  if (plane.contiguous()) {
    (void)FromFloat(plane.dtype, values, {plane.data, bytes});
    return true;
  }
  std::vector<std::byte> narrowed(bytes);
  (void)FromFloat(plane.dtype, values, narrowed);
  ScatterBytes(narrowed, plane);
  return true;
}

std::optional<std::size_t> FindNonFinite(std::span<const float> values) {
  if (AllFinite(values)) return std::nullopt;
  const auto first = std::find_if(values.begin(), values.end(),
                                  [](float value) { return Exponent(value) == kNoExponent; });
  return static_cast<std::size_t>(first - values.begin());
}

}  // namespace kvserve
