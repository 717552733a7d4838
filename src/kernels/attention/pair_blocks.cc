#include "kernels/attention/pair_blocks.h"

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/pair_blocks.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::ScalableTag<double>;
using F32 = hn::Rebind<float, F64>;
using V64 = hn::Vec<F64>;

HWY_INLINE V64 Widen(const float* from) {
  return hn::PromoteTo(F64(), hn::LoadU(F32(), from));
}
HWY_INLINE void Narrow(V64 values, float* to) {
  hn::StoreU(hn::DemoteTo(F32(), values), F32(), to);
}

}  // namespace

// Returns how many leading blocks it did.
std::size_t TurnVectors(const PairBlocks<const float>& in, const TurnColumns& difference,
                        const TurnColumns& sum, const PairBlocks<float>& out) {
  const F64 d;
  const auto half = hn::Set(d, 0.5);
  std::size_t k = 0;
  for (; k + hn::Lanes(d) <= sum.cosine.size(); k += hn::Lanes(d)) {
    const auto xx = Widen(in.xx + k);
    const auto xy = Widen(in.xy + k);
    const auto yx = Widen(in.yx + k);
    const auto yy = Widen(in.yy + k);
    const auto c0 = hn::LoadU(d, difference.cosine.data() + k);
    const auto s0 = hn::LoadU(d, difference.sine.data() + k);
    const auto c1 = hn::LoadU(d, sum.cosine.data() + k);
    const auto s1 = hn::LoadU(d, sum.sine.data() + k);
    const auto u0 = hn::Mul(hn::Add(xx, yy), half);
    const auto u1 = hn::Mul(hn::Sub(yx, xy), half);
    const auto w0 = hn::Mul(hn::Sub(xx, yy), half);
    const auto w1 = hn::Mul(hn::Add(yx, xy), half);
    const auto u_real = hn::Sub(hn::Mul(u0, c0), hn::Mul(u1, s0));
    const auto u_imaginary = hn::Add(hn::Mul(u0, s0), hn::Mul(u1, c0));
    const auto w_real = hn::Sub(hn::Mul(w0, c1), hn::Mul(w1, s1));
    const auto w_imaginary = hn::Add(hn::Mul(w0, s1), hn::Mul(w1, c1));
    Narrow(hn::Add(u_real, w_real), out.xx + k);
    Narrow(hn::Sub(w_imaginary, u_imaginary), out.xy + k);
    Narrow(hn::Add(u_imaginary, w_imaginary), out.yx + k);
    Narrow(hn::Sub(u_real, w_real), out.yy + k);
  }
  return k;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(TurnVectors);

void TurnPairBlocks(const PairBlocks<const float>& in, const TurnColumns& difference,
                    const TurnColumns& sum, const PairBlocks<float>& out) {
  std::size_t done = 0;
  if (!UseScalarKernels()) done = HWY_DYNAMIC_DISPATCH(TurnVectors)(in, difference, sum, out);
  const auto rest = [&](const TurnColumns& turns) {
    return TurnColumns{turns.cosine.subspan(done), turns.sine.subspan(done)};
  };
  TurnPairBlocksRef({in.xx + done, in.xy + done, in.yx + done, in.yy + done}, rest(difference),
                    rest(sum), {out.xx + done, out.xy + done, out.yx + done, out.yy + done});
}

}  // namespace kvserve
#endif
