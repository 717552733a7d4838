// A row or run that is no whole number of vectors ends with one more vector over its last values:
// writing some of them twice is cheaper than finishing one by one. Shorter ones go to the oracle.
#include "kernels/quantize/quantize.h"

#include <algorithm>

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize/quantize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U8 = hn::Rebind<std::uint8_t, F32>;
using VF = hn::Vec<F32>;

struct VectorGrid {
  VF zero, inverse, centre;
};

HWY_INLINE void StoreBytes(hn::Vec<U32> v, std::uint8_t* out) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  hn::StoreU(hn::Vec<U8>{_mm512_cvtepi32_epi8(v.raw)}, U8(), out);
#else
  hn::StoreU(hn::TruncateTo(U8(), v), U8(), out);
#endif
}

// Adding 1.5 * 2^23 rounds to nearest even, as the oracle does, and leaves the integer in the low
// byte.
template <bool kDeadZone>
HWY_INLINE void StoreSymbols(const float* values, const VectorGrid& grid, VF top, VF reach,
                             std::uint8_t* out) {
  const F32 df;
  VF position = hn::Mul(hn::Sub(hn::LoadU(df, values), grid.zero), grid.inverse);
  position = hn::Max(hn::Zero(df), hn::Min(position, top));
  if constexpr (kDeadZone) {
    const auto dead = hn::Lt(hn::Abs(hn::Sub(position, grid.centre)), reach);
    position = hn::IfThenElse(dead, grid.centre, position);
  }
  StoreBytes(hn::BitCast(U32(), hn::Add(position, hn::Set(df, 0x1.8p23F))), out);
}

// Where the symbols lie: at their own number, or by a table of 256 floats.
struct OwnNumber {
  explicit OwnNumber(const float* /*points*/) {}
  HWY_INLINE VF operator()(hn::Vec<I32> symbols) const { return hn::ConvertTo(F32(), symbols); }
};

struct AnyPoint {
  explicit AnyPoint(const float* table) : points(table) {}
  HWY_INLINE VF operator()(hn::Vec<I32> symbols) const {
    return hn::GatherIndex(F32(), points, symbols);
  }
  const float* points;
};

// For alphabets of at most two vectors.
struct FewPoints {
  explicit FewPoints(const float* table)
      : low(hn::LoadU(F32(), table)), high(hn::LoadU(F32(), table + hn::Lanes(F32()))) {}
  HWY_INLINE VF operator()(hn::Vec<I32> symbols) const {
    const I32 di;
    const F32 df;
    const auto lanes = hn::Set(di, static_cast<std::int32_t>(hn::Lanes(df)));
    const auto index = hn::IndicesFromVec(
        df, hn::And(symbols, hn::Set(di, static_cast<std::int32_t>(hn::Lanes(df)) - 1)));
    const auto in_high = hn::RebindMask(df, hn::Gt(symbols, hn::Sub(lanes, hn::Set(di, 1))));
    return hn::IfThenElse(in_high, hn::TableLookupLanes(high, index),
                          hn::TableLookupLanes(low, index));
  }
  VF low, high;
};

template <typename Points>
HWY_INLINE void StoreValues(const std::uint8_t* symbols, const Points& points, VF zero, VF step,
                            float* out) {
  const F32 df;
  const auto numbers = hn::PromoteTo(I32(), hn::LoadU(U8(), symbols));
  hn::StoreU(hn::Add(zero, hn::Mul(points(numbers), step)), df, out);
}

template <typename Vector>
HWY_INLINE void ForEachVector(std::size_t count, const Vector& vector) {
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) vector(i);
  if (i < count) vector(count - lanes);
}

// visit(first value, number of values, range) of every run of at least one vector.
template <typename Visit>
HWY_INLINE void ForEachRun(std::size_t values, Runs runs, const Visit& visit) {
  std::size_t range = 0;
  for (std::size_t segment = 0; segment < values; segment += runs.segment) {
    for (std::size_t at = 0; at < runs.segment; at += runs.group, ++range) {
      visit(segment + at, std::min(runs.group, runs.segment - at), range);
    }
  }
}

template <bool kDeadZone>
void ToSymbols(const float* values, std::size_t rows, std::size_t columns, const Grids& grids,
               std::uint8_t* symbols) {
  const F32 df;
  const VF top = hn::Set(df, static_cast<float>(grids.top));
  const VF reach = hn::Set(df, grids.reach);
  const float* zero = grids.zero.data();
  const float* inverse = grids.inverse.data();
  const float* centre = kDeadZone ? grids.centre.data() : zero;
  for (std::size_t row = 0; row < rows; ++row, values += columns, symbols += columns) {
    ForEachVector(columns, [&](std::size_t c) HWY_ATTR {
      const VectorGrid grid{hn::LoadU(df, zero + c), hn::LoadU(df, inverse + c),
                            hn::LoadU(df, centre + c)};
      StoreSymbols<kDeadZone>(values + c, grid, top, reach, symbols + c);
    });
  }
}

template <bool kDeadZone>
void RunsToSymbols(const float* values, std::size_t count, Runs runs, const Grids& grids,
                   std::uint8_t* symbols) {
  const F32 df;
  const VF top = hn::Set(df, static_cast<float>(grids.top));
  const VF reach = hn::Set(df, grids.reach);
  ForEachRun(count, runs, [&](std::size_t at, std::size_t length, std::size_t range) HWY_ATTR {
    if (length < hn::Lanes(df)) {
      return QuantizeRunsRef({values + at, length}, {length, length}, grids.Part(range, 1),
                             {symbols + at, length});
    }
    const VectorGrid grid{hn::Set(df, grids.zero[range]), hn::Set(df, grids.inverse[range]),
                          hn::Set(df, kDeadZone ? grids.centre[range] : 0.0F)};
    ForEachVector(length, [&](std::size_t i) HWY_ATTR {
      StoreSymbols<kDeadZone>(values + at + i, grid, top, reach, symbols + at + i);
    });
  });
}

template <typename Points>
void ToValues(const std::uint8_t* symbols, std::size_t rows, std::size_t columns,
              const Grids& grids, float* values) {
  const F32 df;
  const Points points(grids.points.data());
  const float* zero = grids.zero.data();
  const float* step = grids.step.data();
  for (std::size_t row = 0; row < rows; ++row, values += columns, symbols += columns) {
    ForEachVector(columns, [&](std::size_t c) HWY_ATTR {
      StoreValues(symbols + c, points, hn::LoadU(df, zero + c), hn::LoadU(df, step + c),
                  values + c);
    });
  }
}

template <typename Points>
void RunsToValues(const std::uint8_t* symbols, std::size_t count, Runs runs, const Grids& grids,
                  float* values) {
  const F32 df;
  const Points points(grids.points.data());
  ForEachRun(count, runs, [&](std::size_t at, std::size_t length, std::size_t range) HWY_ATTR {
    if (length < hn::Lanes(df)) {
      return DequantizeRunsRef({symbols + at, length}, {length, length}, grids.Part(range, 1),
                               {values + at, length});
    }
    const VF zero = hn::Set(df, grids.zero[range]);
    const VF step = hn::Set(df, grids.step[range]);
    ForEachVector(length, [&](std::size_t i) HWY_ATTR {
      StoreValues(symbols + at + i, points, zero, step, values + at + i);
    });
  });
}

bool FitsFewPoints(const Grids& grids) {
  return grids.top < 2 * hn::Lanes(F32());
}

}  // namespace

void ColumnsToSymbolsBulk(const float* values, std::size_t rows, std::size_t columns,
                          const Grids& grids, std::uint8_t* symbols) {
  if (grids.centre.empty()) return ToSymbols<false>(values, rows, columns, grids, symbols);
  ToSymbols<true>(values, rows, columns, grids, symbols);
}

void RunsToSymbolsBulk(const float* values, std::size_t count, Runs runs, const Grids& grids,
                       std::uint8_t* symbols) {
  if (grids.centre.empty()) return RunsToSymbols<false>(values, count, runs, grids, symbols);
  RunsToSymbols<true>(values, count, runs, grids, symbols);
}

void ColumnsToValuesBulk(const std::uint8_t* symbols, std::size_t rows, std::size_t columns,
                         const Grids& grids, float* values) {
  if (grids.points.empty()) return ToValues<OwnNumber>(symbols, rows, columns, grids, values);
  if (FitsFewPoints(grids)) return ToValues<FewPoints>(symbols, rows, columns, grids, values);
  ToValues<AnyPoint>(symbols, rows, columns, grids, values);
}

void RunsToValuesBulk(const std::uint8_t* symbols, std::size_t count, Runs runs, const Grids& grids,
                      float* values) {
  if (grids.points.empty()) return RunsToValues<OwnNumber>(symbols, count, runs, grids, values);
  if (FitsFewPoints(grids)) return RunsToValues<FewPoints>(symbols, count, runs, grids, values);
  RunsToValues<AnyPoint>(symbols, count, runs, grids, values);
}

std::size_t VectorValues() {
  return hn::Lanes(F32());
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(ColumnsToSymbolsBulk);
HWY_EXPORT(RunsToSymbolsBulk);
HWY_EXPORT(ColumnsToValuesBulk);
HWY_EXPORT(RunsToValuesBulk);
HWY_EXPORT(VectorValues);

namespace {

bool UseOracle(std::size_t columns) {
  return UseScalarKernels() || columns < HWY_DYNAMIC_DISPATCH(VectorValues)();
}

}  // namespace

void QuantizeColumns(std::span<const float> values, const Grids& grids,
                     std::span<std::uint8_t> symbols) {
  const std::size_t columns = grids.zero.size();
  if (UseOracle(columns)) return QuantizeColumnsRef(values, grids, symbols);
  HWY_DYNAMIC_DISPATCH(ColumnsToSymbolsBulk)
  (values.data(), values.size() / columns, columns, grids, symbols.data());
}

void DequantizeColumns(std::span<const std::uint8_t> symbols, const Grids& grids,
                       std::span<float> values) {
  const std::size_t columns = grids.zero.size();
  if (UseOracle(columns)) return DequantizeColumnsRef(symbols, grids, values);
  HWY_DYNAMIC_DISPATCH(ColumnsToValuesBulk)
  (symbols.data(), values.size() / columns, columns, grids, values.data());
}

void QuantizeRuns(std::span<const float> values, Runs runs, const Grids& grids,
                  std::span<std::uint8_t> symbols) {
  if (UseScalarKernels()) return QuantizeRunsRef(values, runs, grids, symbols);
  HWY_DYNAMIC_DISPATCH(RunsToSymbolsBulk)
  (values.data(), values.size(), runs, grids, symbols.data());
}

void DequantizeRuns(std::span<const std::uint8_t> symbols, Runs runs, const Grids& grids,
                    std::span<float> values) {
  if (UseScalarKernels()) return DequantizeRunsRef(symbols, runs, grids, values);
  HWY_DYNAMIC_DISPATCH(RunsToValuesBulk)
  (symbols.data(), symbols.size(), runs, grids, values.data());
}

}  // namespace kvserve
#endif
