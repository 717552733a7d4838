// Integer arithmetic on the bits of float32, as convert.cc does it for 16-bit types; the format's
// constants are loaded at run time, since the four types take one path.
#include "kernels/fp8/fp8.h"

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fp8/fp8.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using U8 = hn::Rebind<std::uint8_t, F32>;
using VF = hn::Vec<F32>;
using VI = hn::Vec<I32>;

constexpr std::int32_t kInfinityBits = 0x7F800000;
constexpr std::int32_t kNanBits = 0x7FC00000;

HWY_INLINE VI Int(std::int32_t value) {
  return hn::Set(I32(), value);
}

HWY_INLINE VI Select(hn::Mask<I32> mask, std::int32_t yes, VI no) {
  return hn::IfThenElse(mask, Int(yes), no);
}

// 2^exponent as bits.
HWY_INLINE std::int32_t PowerBits(int exponent) {
  return (exponent + 127) << 23;
}

}  // namespace

// Both handle the leading whole vectors and return how many values that are; the oracle the rest.
std::size_t WidenFp8(const Fp8Format& format, const std::byte* in, float* out, std::size_t count,
                     bool* finite) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  const VF smallest_step = hn::BitCast(df, Int(PowerBits(1 - format.bias - format.mantissa_bits)));
  auto strange = hn::Zero(I32());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VI code =
        hn::PromoteTo(I32(), hn::LoadU(U8(), reinterpret_cast<const std::uint8_t*>(in) + i));
    const VI magnitude = hn::And(code, Int(0x7F));
    const VI sign = hn::ShiftLeft<24>(hn::And(code, Int(0x80)));
    const VI normal = hn::Add(hn::ShiftLeftSame(magnitude, 23 - format.mantissa_bits),
                              Int((127 - format.bias) << 23));
    const VI subnormal = hn::BitCast(I32(), hn::Mul(hn::ConvertTo(df, magnitude), smallest_step));
    VI bits = hn::IfThenElse(hn::Lt(magnitude, Int(1 << format.mantissa_bits)), subnormal, normal);
    if (format.fnuz) {
      const auto nan = hn::Eq(code, Int(0x80));
      bits = Select(nan, kNanBits, hn::Or(bits, sign));
      strange = hn::Or(strange, hn::VecFromMask(I32(), nan));
    } else {
      const auto beyond = hn::Gt(magnitude, Int(format.largest));
      bits = Select(beyond, kNanBits, bits);
      if (format.has_infinity) {
        bits = Select(hn::Eq(magnitude, Int(format.largest + 1)), kInfinityBits, bits);
      }
      bits = hn::Or(bits, sign);
      strange = hn::Or(strange, hn::VecFromMask(I32(), beyond));
    }
    hn::StoreU(hn::BitCast(df, bits), df, out + i);
  }
  *finite = hn::AllTrue(I32(), hn::Eq(strange, hn::Zero(I32())));
  return i;
}

std::size_t NarrowFp8(const Fp8Format& format, bool keep_infinity, const float* in, std::byte* out,
                      std::size_t count, std::size_t* saturated) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  const int dropped = 23 - format.mantissa_bits;
  const VI below_half = Int((1 << (dropped - 1)) - 1);
  const VI rebias = Int((127 - format.bias) << format.mantissa_bits);
  const VI smallest_normal = Int(PowerBits(1 - format.bias));
  // Added to a subnormal result, the FPU rounds at its last place.
  const VI round_bits = Int(PowerBits(1 - format.bias - format.mantissa_bits + 23));
  const VI nan_code = Int(format.fnuz ? 0x80 : format.has_infinity ? 0x7E : 0x7F);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VI bits = hn::BitCast(I32(), hn::LoadU(df, in + i));
    const VI magnitude = hn::And(bits, Int(0x7FFFFFFF));
    VI sign = hn::And(hn::ShiftRight<24>(bits), Int(0x80));
    const VI odd = hn::And(hn::ShiftRightSame(magnitude, dropped), Int(1));
    const VI normal = hn::Sub(
        hn::ShiftRightSame(
            hn::Add(hn::Add(hn::Min(magnitude, Int(kInfinityBits)), below_half), odd), dropped),
        rebias);
    const VI subnormal = hn::Sub(
        hn::BitCast(I32(), hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, round_bits))),
        round_bits);
    VI code = hn::IfThenElse(hn::Lt(magnitude, smallest_normal), subnormal, normal);
    const auto nan = hn::Gt(magnitude, Int(kInfinityBits));
    auto beyond = hn::AndNot(nan, hn::Gt(code, Int(format.largest)));
    code = Select(beyond, format.largest, code);
    if (keep_infinity && format.has_infinity) {
      const auto infinite = hn::Eq(magnitude, Int(kInfinityBits));
      code = Select(infinite, format.largest + 1, code);
      beyond = hn::AndNot(infinite, beyond);
    }
    if (format.fnuz) {
      code = hn::IfThenElse(nan, nan_code, code);
      sign = hn::IfThenZeroElse(hn::Or(nan, hn::Eq(code, hn::Zero(I32()))), sign);
    } else {
      code = hn::IfThenElse(nan, nan_code, code);
    }
    hn::StoreU(hn::TruncateTo(U8(), hn::BitCast(U32(), hn::Or(code, sign))), U8(),
               reinterpret_cast<std::uint8_t*>(out) + i);
    *saturated += hn::CountTrue(I32(), beyond);
  }
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(WidenFp8);
HWY_EXPORT(NarrowFp8);

bool Fp8ToFloat(DType dtype, std::span<const std::byte> in, std::span<float> out) {
  std::size_t done = 0;
  bool finite = true;
  if (!UseScalarKernels()) {
    done = HWY_DYNAMIC_DISPATCH(WidenFp8)(Fp8FormatOf(dtype), in.data(), out.data(), in.size(),
                                          &finite);
  }
  const bool rest = Fp8ToFloatRef(dtype, in.subspan(done), out.subspan(done));
  return finite && rest;
}

std::size_t FloatToFp8(DType dtype, std::span<const float> in, std::span<std::byte> out,
                       bool keep_infinity) {
  std::size_t done = 0;
  std::size_t saturated = 0;
  if (!UseScalarKernels()) {
    done = HWY_DYNAMIC_DISPATCH(NarrowFp8)(Fp8FormatOf(dtype), keep_infinity, in.data(), out.data(),
                                           in.size(), &saturated);
  }
  return saturated + FloatToFp8Ref(dtype, in.subspan(done), out.subspan(done), keep_infinity);
}

}  // namespace kvserve
#endif
