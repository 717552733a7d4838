// A part of up to kLargest values lives in registers: strides of whole vectors are additions
// between registers, smaller ones swap lanes and take one multiply-add with +-1, which rounds as
// the addition does, so the bits are those of the plain butterflies. Larger parts first go through
// passes in memory. Signs and scale are applied as values are loaded, or signs as they are stored.
#include "kernels/hadamard/hadamard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hadamard/hadamard.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Steps besides the butterflies, in this order.
constexpr unsigned kSignIn = 1;
constexpr unsigned kScale = 2;
constexpr unsigned kSignOut = 4;

template <unsigned kSteps, class D, class V>
HWY_INLINE V OnLoad(D d, V v, const std::uint32_t* signs, V scale) {
  if constexpr ((kSteps & kSignIn) != 0) {
    v = hn::Xor(v, hn::BitCast(d, hn::LoadU(hn::RebindToUnsigned<D>(), signs)));
  }
  if constexpr ((kSteps & kScale) != 0) v = hn::Mul(v, scale);
  return v;
}

template <unsigned kSteps, class D, class V>
HWY_INLINE V OnStore(D d, V v, const std::uint32_t* signs) {
  if constexpr ((kSteps & kSignOut) != 0) {
    v = hn::Xor(v, hn::BitCast(d, hn::LoadU(hn::RebindToUnsigned<D>(), signs)));
  }
  return v;
}

// The oracle's order, for what is smaller than any vector.
template <unsigned kSteps>
void SmallPart(float* values, const std::uint32_t* signs, float scale, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if constexpr ((kSteps & kSignIn) != 0) {
      values[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[i]) ^ signs[i]);
    }
    values[i] *= scale;
  }
  for (std::size_t stride = n / 2; stride > 0; stride /= 2) {
    for (std::size_t i = 0; i < n; ++i) {
      if ((i & stride) != 0) continue;
      const float a = values[i];
      const float b = values[i + stride];
      values[i] = a + b;
      values[i + stride] = a - b;
    }
  }
  if constexpr ((kSteps & kSignOut) != 0) {
    for (std::size_t i = 0; i < n; ++i) {
      values[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[i]) ^ signs[i]);
    }
  }
}

template <unsigned kSteps>
void SmallParts(float* values, std::size_t count, std::size_t dim, const std::uint32_t* signs,
                std::size_t heads, std::size_t n) {
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
  for (std::size_t i = 0, head = 0; i < count; ++i) {
    SmallPart<kSteps>(values + i * dim, signs + head * dim, scale, n);
    head = head + 1 == heads ? 0 : head + 1;
  }
}

#if HWY_TARGET != HWY_SCALAR

// Registers that hold a part: 16 of 32, or 8 of 16.
constexpr std::size_t kLargest =
    (HWY_TARGET <= HWY_AVX3 ? 16 : 8) * hn::MaxLanes(hn::ScalableTag<float>());

// +1 where (lane & stride) is 0, else -1, for strides 1, 2, 4, 8.
HWY_ALIGN constexpr float kLaneSigns[4][16] = {
    {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
    {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
    {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
    {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1},
};

// Lane i gets lane i ^ stride.
template <std::size_t kStride, class D, class V>
HWY_INLINE V SwapLanes(D d, V v) {
  if constexpr (kStride == 1) return hn::Shuffle2301(v);
  if constexpr (kStride == 2) return hn::Shuffle1032(v);
  if constexpr (kStride == 4) return hn::SwapAdjacentBlocks(v);
  if constexpr (kStride == 8) return hn::ConcatLowerUpper(d, v, v);
}

// The helpers below unroll over registers by index sequences: arrays that are only indexed by
// constants stay in registers with every compiler.
template <std::size_t kStride, std::size_t kPair, class V, std::size_t kCount>
HWY_INLINE void Butterfly(V (&v)[kCount]) {
  constexpr std::size_t kFirst = kPair / kStride * 2 * kStride + kPair % kStride;
  const V a = v[kFirst];
  const V b = v[kFirst + kStride];
  v[kFirst] = hn::Add(a, b);
  v[kFirst + kStride] = hn::Sub(a, b);
}

template <std::size_t kStride, class V, std::size_t kCount, std::size_t... kPairs>
HWY_INLINE void BetweenRegisters(V (&v)[kCount], std::index_sequence<kPairs...> pairs) {
  if constexpr (kStride > 0) {
    (Butterfly<kStride, kPairs>(v), ...);
    BetweenRegisters<kStride / 2>(v, pairs);
  }
}

template <std::size_t kStride, class D, class V, std::size_t kCount, std::size_t... kAll>
HWY_INLINE void WithinRegisters(D d, V (&v)[kCount], std::index_sequence<kAll...> all) {
  if constexpr (kStride > 0) {
    const V signs = hn::LoadU(d, kLaneSigns[std::countr_zero(kStride)]);
    ((v[kAll] = hn::MulAdd(v[kAll], signs, SwapLanes<kStride>(d, v[kAll]))), ...);
    WithinRegisters<kStride / 2>(d, v, all);
  }
}

template <unsigned kSteps, class D, std::size_t... kAll>
HWY_INLINE void RegisterPart(D d, float* values, const std::uint32_t* signs, hn::Vec<D> scale,
                             std::index_sequence<kAll...> all) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  constexpr std::size_t kCount = sizeof...(kAll);
  hn::Vec<D> v[kCount] = {
      OnLoad<kSteps>(d, hn::LoadU(d, values + kAll * kLanes), signs + kAll * kLanes, scale)...};
  BetweenRegisters<kCount / 2>(v, std::make_index_sequence<kCount / 2>());
  WithinRegisters<kLanes / 2>(d, v, all);
  (hn::StoreU(OnStore<kSteps>(d, v[kAll], signs + kAll * kLanes), d, values + kAll * kLanes), ...);
}

template <std::size_t kSize, unsigned kSteps>
void RegisterParts(float* values, std::size_t count, std::size_t dim, const std::uint32_t* signs,
                   std::size_t heads) {
  using D = hn::CappedTag<float, kSize>;
  const auto scale = hn::Set(D(), static_cast<float>(1.0 / std::sqrt(static_cast<double>(kSize))));
  for (std::size_t i = 0, head = 0; i < count; ++i) {
    RegisterPart<kSteps>(D(), values + i * dim, signs + head * dim, scale,
                         std::make_index_sequence<kSize / hn::MaxLanes(D())>());
    head = head + 1 == heads ? 0 : head + 1;
  }
}

// The two largest strides of n values in memory.
template <unsigned kSteps>
void MemoryPass(float* values, const std::uint32_t* signs, float scale, std::size_t n) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V factor = hn::Set(d, scale);
  const std::size_t step = n / 4;
  for (std::size_t i = 0; i < step; i += hn::MaxLanes(d)) {
    V v[4] = {OnLoad<kSteps>(d, hn::LoadU(d, values + i), signs + i, factor),
              OnLoad<kSteps>(d, hn::LoadU(d, values + i + step), signs + i + step, factor),
              OnLoad<kSteps>(d, hn::LoadU(d, values + i + 2 * step), signs + i + 2 * step, factor),
              OnLoad<kSteps>(d, hn::LoadU(d, values + i + 3 * step), signs + i + 3 * step, factor)};
    BetweenRegisters<2>(v, std::make_index_sequence<2>());
    hn::StoreU(v[0], d, values + i);
    hn::StoreU(v[1], d, values + i + step);
    hn::StoreU(v[2], d, values + i + 2 * step);
    hn::StoreU(v[3], d, values + i + 3 * step);
  }
}

// More values than registers hold: passes over quarters until they fit.
template <unsigned kSteps>
void LargePart(float* values, const std::uint32_t* signs, float scale, std::size_t n) {
  constexpr unsigned kRest = kSteps & kSignOut;
  MemoryPass<kSteps>(values, signs, scale, n);
  const std::size_t quarter = n / 4;
  if (quarter == kLargest) return RegisterParts<kLargest, kRest>(values, 4, quarter, signs, 4);
  if (quarter < kLargest) return RegisterParts<kLargest / 2, kRest>(values, 4, quarter, signs, 4);
  for (std::size_t i = 0; i < n; i += quarter) {
    LargePart<kRest>(values + i, signs + i, 1.0F, quarter);
  }
}

template <unsigned kSteps>
void LargeParts(float* values, std::size_t count, std::size_t dim, const std::uint32_t* signs,
                std::size_t heads, std::size_t n) {
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
  for (std::size_t i = 0; i < count; ++i) {
    LargePart<kSteps>(values + i * dim, signs + i % heads * dim, scale, n);
  }
}

// The part of n values at the start of each of `count` head vectors, beginning with head 0.
template <unsigned kSteps, std::size_t kSize = 4>
void Parts(float* values, std::size_t count, std::size_t dim, const std::uint32_t* signs,
           std::size_t heads, std::size_t n) {
  if (n < kSize) return SmallParts<kSteps>(values, count, dim, signs, heads, n);
  if (n == kSize) return RegisterParts<kSize, kSteps>(values, count, dim, signs, heads);
  if constexpr (kSize < kLargest) {
    Parts<kSteps, 2 * kSize>(values, count, dim, signs, heads, n);
  } else {
    LargeParts<kSteps>(values, count, dim, signs, heads, n);
  }
}

#else

template <unsigned kSteps>
void Parts(float* values, std::size_t count, std::size_t dim, const std::uint32_t* signs,
           std::size_t heads, std::size_t n) {
  SmallParts<kSteps>(values, count, dim, signs, heads, n);
}

#endif

}  // namespace

// Rows are taken few at a time, so that the parts of a vector after the first find it in L1.
void TransformRows(float* values, std::size_t count, const std::uint32_t* signs,
                   std::size_t sign_count, std::size_t dim, bool forward) {
  constexpr std::size_t kBlock = 4096;
  const std::size_t heads = sign_count / dim;
  const std::size_t block = std::max<std::size_t>(1, kBlock / sign_count) * sign_count;
  for (std::size_t at = 0; at < count; at += block) {
    const std::size_t vectors = std::min(block, count - at) / dim;
    for (std::size_t begin = 0; begin < dim;) {
      const std::size_t n = std::bit_floor(dim - begin);
      float* part = values + at + begin;
      if (forward) {
        Parts<kSignIn | kScale>(part, vectors, dim, signs + begin, heads, n);
      } else {
        Parts<kScale | kSignOut>(part, vectors, dim, signs + begin, heads, n);
      }
      begin += n;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(TransformRows);

void HadamardForward(std::span<float> values, std::span<const std::uint32_t> signs,
                     std::uint32_t dim) {
  if (UseScalarKernels()) return HadamardForwardRef(values, signs, dim);
  HWY_DYNAMIC_DISPATCH(TransformRows)
  (values.data(), values.size(), signs.data(), signs.size(), dim, true);
}

void HadamardInverse(std::span<float> values, std::span<const std::uint32_t> signs,
                     std::uint32_t dim) {
  if (UseScalarKernels()) return HadamardInverseRef(values, signs, dim);
  HWY_DYNAMIC_DISPATCH(TransformRows)
  (values.data(), values.size(), signs.data(), signs.size(), dim, false);
}

}  // namespace kvserve
#endif
