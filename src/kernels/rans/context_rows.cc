#include "kernels/rans/context_rows.h"

#include <algorithm>

#include "kernels/isa/isa.h"
#include "kernels/rans/context_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rans/context_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Each gives how many elements, from the first, it has dealt with.

std::size_t IndicesBulk(const std::int8_t* columns, std::size_t count, std::int32_t shift,
                        std::uint8_t* indices) {
  const hn::ScalableTag<std::int8_t> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto by = hn::Set(d, static_cast<std::int8_t>(shift));
  const auto last = hn::Set(d, static_cast<std::int8_t>(kContextTables - 1));
  std::size_t c = 0;
  for (; c + hn::Lanes(d) <= count; c += hn::Lanes(d)) {
    const auto sum = hn::SaturatedAdd(hn::LoadU(d, columns + c), by);
    const auto limited = hn::Min(hn::Max(sum, hn::Zero(d)), last);
    hn::StoreU(hn::BitCast(du, limited), du, indices + c);
  }
  return c;
}

std::size_t SizesBulk(const std::uint8_t* symbols, std::size_t count, std::uint64_t& sum) {
  const hn::ScalableTag<std::uint8_t> d;
  const hn::Repartition<std::uint64_t, decltype(d)> d64;
  const auto centre = hn::Set(d, 127);
  auto sums = hn::Zero(d64);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, symbols + i);
    const auto size = hn::Or(hn::SaturatedSub(v, centre), hn::SaturatedSub(centre, v));
    sums = hn::Add(sums, hn::SumsOf8(size));
  }
  sum = hn::GetLane(hn::SumOfLanes(d64, sums));
  return i;
}

std::size_t MaximumBulk(const std::uint8_t* symbols, std::size_t count, std::uint8_t& maximum) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  auto most = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) most = hn::Max(most, hn::LoadU(d, symbols + i));
  HWY_ALIGN std::uint8_t all[HWY_MAX_BYTES];
  hn::Store(most, d, all);
  maximum = *std::max_element(all, all + lanes);
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace kvserve {
namespace {

HWY_EXPORT(IndicesBulk);
HWY_EXPORT(SizesBulk);
HWY_EXPORT(MaximumBulk);

}  // namespace

void ContextIndices(std::span<const std::int8_t> columns, std::int32_t shift,
                    std::span<std::uint8_t> indices) {
  std::size_t done = 0;
  if (!UseScalarKernels()) {
    done = HWY_DYNAMIC_DISPATCH(IndicesBulk)(columns.data(), columns.size(), shift, indices.data());
  }
  ContextIndicesRef(columns.subspan(done), shift, indices.subspan(done));
}

std::uint64_t SumSizes(std::span<const std::uint8_t> symbols) {
  std::uint64_t sum = 0;
  std::size_t done = 0;
  if (!UseScalarKernels()) {
    done = HWY_DYNAMIC_DISPATCH(SizesBulk)(symbols.data(), symbols.size(), sum);
  }
  return sum + SumSizesRef(symbols.subspan(done));
}

bool AllBelow(std::span<const std::uint8_t> symbols, std::uint32_t alphabet) {
  std::uint8_t maximum = 0;
  std::size_t done = 0;
  if (!UseScalarKernels()) {
    done = HWY_DYNAMIC_DISPATCH(MaximumBulk)(symbols.data(), symbols.size(), maximum);
  }
  return maximum < alphabet && AllBelowRef(symbols.subspan(done), alphabet);
}

}  // namespace kvserve

#endif
