// Where the machine converts float16 itself that is used: it differs from the oracle only in NaN,
// which is refused anyway. Finiteness is found by the largest magnitude of the bits, for which one
// integer maximum per vector is enough. Memory is the limit; non-temporal stores are not used,
// since the next stage reads what was written.
#include "kernels/convert/finite_convert.h"

#include <cstdint>
#include <limits>

#include "kernels/convert/convert.h"
#include "kernels/fp8/fp8.h"
#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert/finite_convert.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;
using I16 = hn::RebindToSigned<U16>;
using F16 = hn::Rebind<hwy::float16_t, F32>;
using VF = hn::Vec<F32>;
using VI = hn::Vec<I32>;
using VH = hn::Vec<U16>;

// Vectors at any address.
template <class D>
HWY_INLINE hn::Vec<D> LoadBytes(D d, const std::byte* from) {
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from)));
}

template <class D>
HWY_INLINE void StoreBytes(D /*d*/, hn::Vec<D> v, std::byte* to) {
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, reinterpret_cast<std::uint8_t*>(to));
}

#if HWY_TARGET <= HWY_AVX2

HWY_INLINE VF WidenFloat16(VH half) {
  return hn::PromoteTo(F32(), hn::BitCast(F16(), half));
}

HWY_INLINE VH NarrowFloat16(VF value) {
  return hn::BitCast(U16(), hn::DemoteTo(F16(), value));
}

#else

HWY_INLINE VF WidenFloat16(VH half) {
  const F32 df;
  const I32 di;
  const VI bits = hn::PromoteTo(di, half);
  const VI sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(di, 0x8000)));
  const VI magnitude = hn::And(bits, hn::Set(di, 0x7FFF));
  // As a float32 with the exponent 112 too small; exact also for subnormals. Infinity and NaN come
  // out as numbers of exponent 16 and are caught by their bits.
  const VI shifted = hn::ShiftLeft<13>(magnitude);
  const VI scaled = hn::BitCast(di, hn::Mul(hn::BitCast(df, shifted), hn::Set(df, 0x1p112F)));
  const VI special = hn::Or(scaled, hn::Set(di, 0x7F800000));
  const auto is_special = hn::Gt(magnitude, hn::Set(di, 0x7BFF));
  return hn::BitCast(df, hn::Or(hn::IfThenElse(is_special, special, scaled), sign));
}

// Of magnitudes up to 65504.
HWY_INLINE VH NarrowFloat16(VF value) {
  const F32 df;
  const I32 di;
  const VI bits = hn::BitCast(di, value);
  const VI magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  const VI sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
  const VI odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
  const VI normal = hn::ShiftRight<13>(
      hn::Sub(hn::Add(hn::Add(magnitude, hn::Set(di, 0xFFF)), odd), hn::Set(di, 0x38000000)));
  const VI subnormal =
      hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5F))),
              hn::Set(di, 0x3F000000));
  const auto is_small = hn::Lt(magnitude, hn::Set(di, 0x38800000));
  return hn::DemoteTo(U16(), hn::Or(hn::IfThenElse(is_small, subnormal, normal), sign));
}

#endif

HWY_INLINE VF WidenBFloat16(VH half) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(I32(), half)));
}

// Of magnitudes up to the type's largest.
HWY_INLINE VH NarrowBFloat16(VF value) {
  const hn::RebindToUnsigned<F32> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFF)), odd));
  return hn::DemoteTo(U16(), hn::BitCast(I32(), rounded));
}

template <VF (*kWiden)(VH)>
HWY_INLINE std::size_t Widen(const std::byte* in, float* out, std::size_t count, int no_exponent,
                             bool& finite) {
  const F32 df;
  const I16 di;
  const std::size_t lanes = hn::Lanes(df);
  auto largest = hn::Zero(di);
  const auto mask = hn::Set(di, 0x7FFF);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto half = LoadBytes(U16(), in + 2 * i);
    largest = hn::Max(largest, hn::And(hn::BitCast(di, half), mask));
    hn::StoreU(kWiden(half), df, out + i);
  }
  finite = hn::AllTrue(di, hn::Lt(largest, hn::Set(di, static_cast<std::int16_t>(no_exponent))));
  return i;
}

HWY_INLINE std::size_t Copy(const std::byte* in, float* out, std::size_t count, bool& finite) {
  const F32 df;
  const I32 di;
  const std::size_t lanes = hn::Lanes(df);
  auto largest = hn::Zero(di);
  const auto mask = hn::Set(di, 0x7FFFFFFF);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = LoadBytes(di, in + 4 * i);
    largest = hn::Max(largest, hn::And(value, mask));
    hn::StoreU(hn::BitCast(df, value), df, out + i);
  }
  finite = hn::AllTrue(di, hn::Lt(largest, hn::Set(di, 0x7F800000)));
  return i;
}

HWY_INLINE VI AsBits(VF value) {
  return hn::BitCast(I32(), value);
}

template <class DTo, hn::Vec<DTo> (*kNarrow)(VF)>
HWY_INLINE std::size_t Narrow(const float* in, std::byte* out, std::size_t count, float limit,
                              bool& numbers) {
  const F32 df;
  const I32 di;
  const std::size_t lanes = hn::Lanes(df);
  const VF high = hn::Set(df, limit);
  const VF low = hn::Set(df, -limit);
  const VI mask = hn::Set(di, 0x7FFFFFFF);
  VI largest = hn::Zero(di);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VF value = hn::LoadU(df, in + i);
    largest = hn::Max(largest, hn::And(hn::BitCast(di, value), mask));
    StoreBytes(DTo(), kNarrow(hn::Min(hn::Max(value, low), high)),
               out + i * sizeof(hn::TFromD<DTo>));
  }
  numbers = hn::AllTrue(di, hn::Lt(largest, hn::Set(di, 0x7F800001)));
  return i;
}

}  // namespace

// Both return how many leading elements they converted; the oracle does the rest.
std::size_t WidenFinite(DType dtype, const std::byte* in, float* out, std::size_t count,
                        bool* finite) {
  switch (dtype) {
    case DType::kFloat16: return Widen<WidenFloat16>(in, out, count, 0x7C00, *finite);
    case DType::kBFloat16: return Widen<WidenBFloat16>(in, out, count, 0x7F80, *finite);
    case DType::kFloat32: return Copy(in, out, count, *finite);
    default: return 0;
  }
}

std::size_t NarrowFinite(DType dtype, const float* in, std::byte* out, std::size_t count,
                         bool* numbers) {
  switch (dtype) {
    case DType::kFloat16: return Narrow<U16, NarrowFloat16>(in, out, count, 65504.0F, *numbers);
    case DType::kBFloat16:
      return Narrow<U16, NarrowBFloat16>(in, out, count, 0x1.FEp127F, *numbers);
    case DType::kFloat32:
      return Narrow<I32, AsBits>(in, out, count, std::numeric_limits<float>::max(), *numbers);
    default: return 0;
  }
}

#else

std::size_t WidenFinite(DType, const std::byte*, float*, std::size_t, bool*) {
  return 0;
}
std::size_t NarrowFinite(DType, const float*, std::byte*, std::size_t, bool*) {
  return 0;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(WidenFinite);
HWY_EXPORT(NarrowFinite);

namespace {

bool HasNan(std::span<const float> values) {
  std::uint32_t found = 0;
  for (const float value : values) found |= value != value ? 1U : 0U;
  return found != 0;
}

}  // namespace

bool ToFloatFinite(DType dtype, std::span<const std::byte> in, std::span<float> out) {
  if (IsFp8(dtype)) return Fp8ToFloat(dtype, in, out);
  if (UseScalarKernels()) return ToFloatFiniteRef(dtype, in, out);
  bool finite = true;
  const std::size_t done =
      HWY_DYNAMIC_DISPATCH(WidenFinite)(dtype, in.data(), out.data(), out.size(), &finite);
  if (done == out.size()) return finite;
  return ToFloatFiniteRef(dtype, in.subspan(done * DTypeBytes(dtype)), out.subspan(done)) && finite;
}

bool FromFloatFinite(DType dtype, std::span<const float> in, std::span<std::byte> out) {
  if (IsFp8(dtype)) {
    (void)FloatToFp8(dtype, in, out, false);
    return !HasNan(in);
  }
  if (UseScalarKernels()) return FromFloatFiniteRef(dtype, in, out);
  bool numbers = true;
  const std::size_t done =
      HWY_DYNAMIC_DISPATCH(NarrowFinite)(dtype, in.data(), out.data(), in.size(), &numbers);
  if (done == in.size()) return numbers;
  return FromFloatFiniteRef(dtype, in.subspan(done), out.subspan(done * DTypeBytes(dtype))) &&
         numbers;
}

}  // namespace kvserve
#endif
