// Integer arithmetic only, the same on every target: hardware conversions differ from the oracle in
// what they do to signalling NaN, and memory bandwidth is the limit anyway.
#include "kernels/convert/convert.h"

#include <cstdint>
#include <cstring>

#include "kernels/fp8/fp8.h"
#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert/convert.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;
using VF = hn::Vec<F32>;
using VI = hn::Vec<I32>;

VF WidenFloat16(VI half) {
  const F32 df;
  const I32 di;
  const VI sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(di, 0x8000)));
  const VI magnitude = hn::And(half, hn::Set(di, 0x7FFF));
  const VI rebias = hn::Set(di, 112 << 23);
  const VI normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  // Exponent 31 becomes 255 by adding the bias difference twice.
  const VI special =
      hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7BFF)), hn::Add(normal, rebias), normal);
  const VI subnormal =
      hn::BitCast(di, hn::Mul(hn::ConvertTo(df, magnitude), hn::Set(df, 0x1p-24F)));
  const VI bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x400)), subnormal, special);
  return hn::BitCast(df, hn::Or(bits, sign));
}

VF WidenBFloat16(VI half) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(half));
}

struct Narrowed {
  VI bits;
  hn::Mask<I32> saturated;
};

Narrowed NarrowFloat16(VF value) {
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
  const auto is_large = hn::Gt(magnitude, hn::Set(di, 0x477FEFFF));
  const auto is_special = hn::Gt(magnitude, hn::Set(di, 0x7F7FFFFF));
  const auto is_nan = hn::Gt(magnitude, hn::Set(di, 0x7F800000));
  const VI payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 0x3FF));
  VI half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), subnormal, normal);
  half = hn::IfThenElse(is_large, hn::Set(di, 0x7BFF), half);
  half = hn::IfThenElse(is_special, hn::Set(di, 0x7C00), half);
  half = hn::IfThenElse(is_nan, hn::Or(hn::Set(di, 0x7E00), payload), half);
  return {hn::Or(half, sign), hn::AndNot(is_special, is_large)};
}

Narrowed NarrowBFloat16(VF value) {
  const I32 di;
  const VI bits = hn::BitCast(di, value);
  const VI magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  const VI sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
  const VI high = hn::ShiftRight<16>(magnitude);
  const VI odd = hn::And(high, hn::Set(di, 1));
  // Rounds the magnitude, which cannot carry into the sign before it passes 0x7F80.
  const VI rounded = hn::ShiftRight<16>(
      hn::Add(hn::Add(hn::Min(magnitude, hn::Set(di, 0x7F800000)), hn::Set(di, 0x7FFF)), odd));
  const auto is_large = hn::Gt(magnitude, hn::Set(di, 0x7F7F7FFF));
  const auto is_special = hn::Gt(magnitude, hn::Set(di, 0x7F7FFFFF));
  const auto is_nan = hn::Gt(magnitude, hn::Set(di, 0x7F800000));
  VI half = hn::IfThenElse(is_large, hn::Set(di, 0x7F7F), rounded);
  half = hn::IfThenElse(is_special, hn::Set(di, 0x7F80), half);
  half = hn::IfThenElse(is_nan, hn::Or(high, hn::Set(di, 0x40)), half);
  return {hn::Or(half, sign), hn::AndNot(is_special, is_large)};
}

template <VF (*Widen)(VI)>
std::size_t WidenVectors(const std::byte* in, float* out, std::size_t count) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    HWY_ALIGN std::uint16_t buffer[hn::MaxLanes(df)];
    std::memcpy(buffer, in + 2 * i, 2 * lanes);
    hn::StoreU(Widen(hn::PromoteTo(I32(), hn::Load(U16(), buffer))), df, out + i);
  }
  return i;
}

template <Narrowed (*Narrow)(VF)>
std::size_t NarrowVectors(const float* in, std::byte* out, std::size_t count,
                          std::size_t& saturated) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Narrowed narrowed = Narrow(hn::LoadU(df, in + i));
    HWY_ALIGN std::uint16_t buffer[hn::MaxLanes(df)];
    hn::Store(hn::DemoteTo(U16(), narrowed.bits), U16(), buffer);
    std::memcpy(out + 2 * i, buffer, 2 * lanes);
    saturated += hn::CountTrue(I32(), narrowed.saturated);
  }
  return i;
}

}  // namespace

// Both return how many leading elements they converted; the oracle does the rest.
std::size_t WidenBulk(bool is_bfloat16, const std::byte* in, float* out, std::size_t count) {
  return is_bfloat16 ? WidenVectors<WidenBFloat16>(in, out, count)
                     : WidenVectors<WidenFloat16>(in, out, count);
}

std::size_t NarrowBulk(bool is_bfloat16, const float* in, std::byte* out, std::size_t count,
                       std::size_t* saturated) {
  return is_bfloat16 ? NarrowVectors<NarrowBFloat16>(in, out, count, *saturated)
                     : NarrowVectors<NarrowFloat16>(in, out, count, *saturated);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(WidenBulk);
HWY_EXPORT(NarrowBulk);

void ToFloat(DType dtype, std::span<const std::byte> in, std::span<float> out) {
  if (IsFp8(dtype)) return (void)Fp8ToFloat(dtype, in, out);
  std::size_t done = 0;
  const bool is_bfloat16 = dtype == DType::kBFloat16;
  if (!UseScalarKernels() && (is_bfloat16 || dtype == DType::kFloat16)) {
    done = HWY_DYNAMIC_DISPATCH(WidenBulk)(is_bfloat16, in.data(), out.data(), out.size());
  }
  ToFloatRef(dtype, in.subspan(done * DTypeBytes(dtype)), out.subspan(done));
}

std::size_t FromFloat(DType dtype, std::span<const float> in, std::span<std::byte> out) {
  if (IsFp8(dtype)) return FloatToFp8(dtype, in, out, true);
  std::size_t done = 0;
  std::size_t saturated = 0;
  const bool is_bfloat16 = dtype == DType::kBFloat16;
  if (!UseScalarKernels() && (is_bfloat16 || dtype == DType::kFloat16)) {
    done =
        HWY_DYNAMIC_DISPATCH(NarrowBulk)(is_bfloat16, in.data(), out.data(), in.size(), &saturated);
  }
  return saturated + FromFloatRef(dtype, in.subspan(done), out.subspan(done * DTypeBytes(dtype)));
}

}  // namespace kvserve
#endif
