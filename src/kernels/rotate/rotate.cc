// Row by row: sines and cosines of some pairs, then these pairs of all heads.
#include "kernels/rotate/rotate.h"

#include <algorithm>

#include "kernels/isa/isa.h"
#include "kernels/rotate/rope_series.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotate/rotate.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef KVSERVE_ROPE_BLOCK
#define KVSERVE_ROPE_BLOCK
namespace kvserve {
namespace {

constexpr std::size_t kBlock = 64;  // pairs whose sines are kept at a time
static_assert(kBlock % kRopePadding == 0);

// Signs: the way of the rotation is that of the sine.
struct RopeBlock {
  std::uint64_t phases[kBlock];
  alignas(64) float cosines[kBlock];
  alignas(64) float sines[kBlock];
};

}  // namespace
}  // namespace kvserve
#endif

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::CappedTag<double, 8>;
using I64 = hn::RebindToSigned<F64>;
using U64 = hn::RebindToUnsigned<F64>;
using F32 = hn::ScalableTag<float>;

// Exact for integers below 2^51.
HWY_INLINE hn::Vec<F64> ToDouble(hn::Vec<I64> x) {
  const auto shifted = hn::Add(x, hn::Set(I64(), std::int64_t{0x4338000000000000}));
  return hn::Sub(hn::BitCast(F64(), shifted), hn::Set(F64(), 0x1.8p52));
}

template <std::size_t kTerms>
HWY_INLINE hn::Vec<F64> Polynomial(const double (&terms)[kTerms], hn::Vec<F64> w) {
  auto sum = hn::Set(F64(), terms[0]);
  for (std::size_t i = 1; i < kTerms; ++i) {
    sum = hn::Add(hn::Mul(sum, w), hn::Set(F64(), terms[i]));
  }
  return sum;
}

// Of the phases [0, padded).
HWY_INLINE void Sines(RopeBlock& block, std::size_t padded, bool negate) {
  const F64 d;
  const hn::Rebind<float, F64> half;
  const U64 u;
  const auto turned = hn::Set(u, negate ? std::uint64_t{1} << 63 : 0);
  for (std::size_t i = 0; i < padded; i += hn::Lanes(d)) {
    const auto phase = hn::LoadU(u, block.phases + i);
    const auto quarter = hn::ShiftRight<62>(hn::Add(phase, hn::Set(u, std::uint64_t{1} << 61)));
    const auto rest = hn::BitCast(I64(), hn::Sub(phase, hn::ShiftLeft<62>(quarter)));
    const auto z = hn::Mul(ToDouble(hn::ShiftRight<kPhaseShift>(rest)), hn::Set(d, kRadians));
    const auto w = hn::Mul(z, z);
    const auto sine = hn::Mul(Polynomial(kSine, w), z);
    const auto cosine = Polynomial(kCosine, w);
    // Odd quarters swap them; the sine is negative from quarter 2 on, the cosine in 1 and 2.
    const auto odd = hn::MaskFromVec(
        hn::BitCast(d, hn::Sub(hn::Zero(u), hn::And(quarter, hn::Set(u, std::uint64_t{1})))));
    const auto sine_sign = hn::Xor(hn::ShiftLeft<63>(hn::ShiftRight<1>(quarter)), turned);
    const auto cosine_sign = hn::ShiftLeft<63>(hn::Xor(quarter, hn::ShiftRight<1>(quarter)));
    const auto s = hn::Xor(hn::IfThenElse(odd, cosine, sine), hn::BitCast(d, sine_sign));
    const auto c = hn::Xor(hn::IfThenElse(odd, sine, cosine), hn::BitCast(d, cosine_sign));
    hn::StoreU(hn::DemoteTo(half, s), half, block.sines + i);
    hn::StoreU(hn::DemoteTo(half, c), half, block.cosines + i);
  }
}

// a c + b s, b c - a s
HWY_INLINE void TurnHalves(float* a, float* b, const RopeBlock& block, std::size_t pairs) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const auto c = hn::LoadU(d, block.cosines + i);
    const auto s = hn::LoadU(d, block.sines + i);
    const auto x = hn::LoadU(d, a + i);
    const auto y = hn::LoadU(d, b + i);
    hn::StoreU(hn::Add(hn::Mul(x, c), hn::Mul(y, s)), d, a + i);
    hn::StoreU(hn::Sub(hn::Mul(y, c), hn::Mul(x, s)), d, b + i);
  }
  for (; i < pairs; ++i) {
    const float x = a[i];
    const float y = b[i];
    a[i] = x * block.cosines[i] + y * block.sines[i];
    b[i] = y * block.cosines[i] - x * block.sines[i];
  }
}

HWY_INLINE void TurnInterleaved(float* values, const RopeBlock& block, std::size_t pairs) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const auto c = hn::LoadU(d, block.cosines + i);
    const auto s = hn::LoadU(d, block.sines + i);
    hn::Vec<F32> x, y;
    hn::LoadInterleaved2(d, values + 2 * i, x, y);
    hn::StoreInterleaved2(hn::Add(hn::Mul(x, c), hn::Mul(y, s)),
                          hn::Sub(hn::Mul(y, c), hn::Mul(x, s)), d, values + 2 * i);
  }
  for (; i < pairs; ++i) {
    const float x = values[2 * i];
    const float y = values[2 * i + 1];
    values[2 * i] = x * block.cosines[i] + y * block.sines[i];
    values[2 * i + 1] = y * block.cosines[i] - x * block.sines[i];
  }
}

}  // namespace

// Applying is undoing with the other sine: x - y s and x + y (-s) have the same bits.
void TurnRows(float* values, std::size_t count, const RopeRows& rope, bool apply) {
  const std::size_t columns = std::size_t{rope.heads} * rope.dim;
  const std::size_t pairs = rope.dim / 2;
  RopeBlock block;
  std::uint64_t position = rope.first_position;
  for (float* row = values; row < values + count; row += columns, ++position) {
    for (std::size_t first = 0; first < pairs; first += kBlock) {
      const std::size_t padded = std::min(kBlock, rope.turns.size() - first);
      for (std::size_t i = 0; i < padded; ++i) block.phases[i] = position * rope.turns[first + i];
      Sines(block, padded, apply);
      const std::size_t some = std::min(kBlock, pairs - first);
      for (float* head = row; head < row + columns; head += rope.dim) {
        if (rope.style == RopeStyle::kHalves) {
          TurnHalves(head + first, head + first + pairs, block, some);
        } else {
          TurnInterleaved(head + 2 * first, block, some);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(TurnRows);

void UndoRope(std::span<float> values, const RopeRows& rope) {
  if (UseScalarKernels()) return UndoRopeRef(values, rope);
  HWY_DYNAMIC_DISPATCH(TurnRows)(values.data(), values.size(), rope, false);
}

void ApplyRope(std::span<float> values, const RopeRows& rope) {
  if (UseScalarKernels()) return ApplyRopeRef(values, rope);
  HWY_DYNAMIC_DISPATCH(TurnRows)(values.data(), values.size(), rope, true);
}

}  // namespace kvserve
#endif
