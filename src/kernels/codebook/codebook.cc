// One comparison per middle and value beats a search, since there are few middles.
#include "kernels/codebook/codebook.h"

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/codebook/codebook.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns how many leading values it did.
std::size_t CountMiddles(const float* middles, std::size_t count, const float* values,
                         std::size_t size, float inverse, std::uint8_t* symbols) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> integers;
  const hn::RebindToUnsigned<decltype(d)> naturals;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const std::size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, inverse);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, values + i), factor);
    auto below = hn::Zero(integers);
    for (std::size_t m = 0; m < count; ++m) {
      const auto above = hn::Gt(scaled, hn::Set(d, middles[m]));
      below = hn::Sub(below, hn::BitCast(integers, hn::VecFromMask(d, above)));
    }
    hn::StoreU(hn::TruncateTo(bytes, hn::BitCast(naturals, below)), bytes, symbols + i);
  }
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(CountMiddles);

void QuantizeToCodebook(const Codebook& codebook, std::span<const float> values, float inverse,
                        std::span<std::uint8_t> symbols) {
  std::size_t done = 0;
  if (!UseScalarKernels()) {
    done =
        HWY_DYNAMIC_DISPATCH(CountMiddles)(codebook.middles.data(), codebook.middles.size(),
                                           values.data(), values.size(), inverse, symbols.data());
  }
  QuantizeToCodebookRef(codebook, values.subspan(done), inverse, symbols.subspan(done));
}

}  // namespace kvserve
#endif
