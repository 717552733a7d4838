// Magnitudes as bits order like the numbers, infinity and NaN last: one integer maximum per vector,
// in four sums that do not wait for each other. No early exit, since values are usually good.
#include "kernels/convert/magnitude.h"

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert/magnitude.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

// The largest magnitude's bits among the first values; returns how many were looked at.
std::size_t LargestBits(const float* values, std::size_t count, std::uint32_t* largest) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto magnitude = hn::Set(di, 0x7FFFFFFF);
  const std::size_t lanes = hn::Lanes(df);
  const auto load = [&](std::size_t i) {
    return hn::And(hn::BitCast(di, hn::LoadU(df, values + i)), magnitude);
  };
  auto a = hn::Zero(di);
  auto b = a;
  auto c = a;
  auto d = a;
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Max(a, load(i));
    b = hn::Max(b, load(i + lanes));
    c = hn::Max(c, load(i + 2 * lanes));
    d = hn::Max(d, load(i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) a = hn::Max(a, load(i));
  const auto all = hn::Max(hn::Max(a, b), hn::Max(c, d));
  *largest = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, all)));
  return i;
}

#else

std::size_t LargestBits(const float*, std::size_t, std::uint32_t*) {
  return 0;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(LargestBits);

bool MagnitudesWithin(float bound, std::span<const float> values) {
  if (UseScalarKernels()) return MagnitudesWithinRef(bound, values);
  std::uint32_t largest = 0;
  const std::size_t done =
      HWY_DYNAMIC_DISPATCH(LargestBits)(values.data(), values.size(), &largest);
  return largest <= std::bit_cast<std::uint32_t>(bound) &&
         MagnitudesWithinRef(bound, values.subspan(done));
}

}  // namespace kvserve
#endif
