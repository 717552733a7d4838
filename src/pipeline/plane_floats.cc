#include "pipeline/plane_floats.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "kernels/convert/convert.h"

namespace kvserve {
namespace {

constexpr float kMaxFloat16 = 65504.0F;
constexpr float kMaxBFloat16 = std::bit_cast<float>(0x7F7F0000U);
constexpr float kMaxFloat32 = std::numeric_limits<float>::max();

// Negated comparisons keep NaN.
float Clamp(float value, float limit) {
  value = value > limit ? limit : value;
  return value < -limit ? -limit : value;
}

struct Float16Element {
  using Bits = std::uint16_t;
  static float Load(Bits bits) { return Float16ToFloat(bits); }
  static Bits Store(float value) { return FloatToFloat16(Clamp(value, kMaxFloat16)); }
};

struct BFloat16Element {
  using Bits = std::uint16_t;
  static float Load(Bits bits) { return BFloat16ToFloat(bits); }
  static Bits Store(float value) { return FloatToBFloat16(Clamp(value, kMaxBFloat16)); }
};

struct Float32Element {
  using Bits = float;
  static float Load(Bits bits) { return bits; }
  static Bits Store(float value) { return Clamp(value, kMaxFloat32); }
};

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

// Visits elements one by one: planes whose channels are apart.
template <typename Element, typename Byte, typename Float, typename Step>
void ForEach(const BasicPlaneView<Byte>& plane, Float* values, Step step) {
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    for (std::uint32_t head = 0; head < plane.heads; ++head) {
      for (std::uint32_t d = 0; d < plane.dim; ++d) step(plane.at(token, head, d), *values++);
    }
  }
}

template <typename Element>
void Load(const ConstPlaneView& plane, float* out) {
  ForEach<Element>(plane, out, [](const std::byte* from, float& to) {
    typename Element::Bits bits;
    std::memcpy(&bits, from, sizeof(bits));
    to = Element::Load(bits);
  });
}

template <typename Element>
void Store(const float* values, const PlaneView& plane) {
  ForEach<Element>(plane, values, [](std::byte* to, float from) {
    const typename Element::Bits bits = Element::Store(from);
    std::memcpy(to, &bits, sizeof(bits));
  });
}

// Calls run(bytes, first value, values) for the longest runs that lie together in memory.
template <typename Byte, typename Run>
void ForEachRun(const BasicPlaneView<Byte>& plane, Run run) {
  const std::size_t size = DTypeBytes(plane.dtype);
  const auto visit = [&](Byte* at, std::size_t first, std::size_t count) {
    run(std::span<Byte>(at, count * size), first, count);
  };
  const std::size_t columns = std::size_t{plane.heads} * plane.dim;
  if (plane.contiguous()) return visit(plane.data, 0, plane.values());
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    if (plane.head_stride == plane.dim) {
      visit(plane.at(token, 0, 0), token * columns, columns);
      continue;
    }
    for (std::uint32_t head = 0; head < plane.heads; ++head) {
      visit(plane.at(token, head, 0), token * columns + std::size_t{head} * plane.dim, plane.dim);
    }
  }
}

}  // namespace

void LoadFloats(const ConstPlaneView& plane, std::span<float> out) {
  if (plane.dim_stride == 1) {
    return ForEachRun(plane,
                      [&](std::span<const std::byte> bytes, std::size_t first, std::size_t count) {
                        ToFloat(plane.dtype, bytes, out.subspan(first, count));
                      });
  }
  switch (plane.dtype) {
    case DType::kFloat16: return Load<Float16Element>(plane, out.data());
    case DType::kBFloat16: return Load<BFloat16Element>(plane, out.data());
    default: return Load<Float32Element>(plane, out.data());
  }
}

bool StoreFloats(std::span<const float> values, const PlaneView& plane) {
  const bool finite = AllFinite(values);
  if (!finite && HasNan(values)) return false;
  if (finite && plane.dim_stride == 1) {  // the kernel would keep infinities
    ForEachRun(plane, [&](std::span<std::byte> bytes, std::size_t first, std::size_t count) {
      (void)FromFloat(plane.dtype, values.subspan(first, count), bytes);
    });
    return true;
  }
  switch (plane.dtype) {
    case DType::kFloat16: Store<Float16Element>(values.data(), plane); break;
    case DType::kBFloat16: Store<BFloat16Element>(values.data(), plane); break;
    default: Store<Float32Element>(values.data(), plane); break;
  }
  return true;
}

std::optional<std::size_t> FindNonFinite(std::span<const float> values) {
  if (AllFinite(values)) return std::nullopt;
  const auto first = std::find_if(values.begin(), values.end(),
                                  [](float value) { return Exponent(value) == kNoExponent; });
  return static_cast<std::size_t>(first - values.begin());
}

}  // namespace kvserve
