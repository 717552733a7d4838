// Vectors lie along the columns: two inputs of a row, as one 32-bit lane, are multiplied by the
// pairs of weights of many columns at once. Blocks of rows by two vectors of columns stay in
// registers over 512 inputs.
#include "kernels/predict_rows/predict_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/isa/isa.h"
#include "kernels/predict_rows/predict_rows_x86.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/predict_rows/predict_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
#if HWY_TARGET == HWY_SCALAR  // has no pairs

}  // namespace

void PredictVectors(const PackedPredictor& predictor, const std::int16_t* in, std::size_t in_stride,
                    std::size_t rows, float* out, std::size_t out_stride) {
  PredictRowsRef(predictor, in, in_stride, rows, out, out_stride);
}

#else

using I32 = hn::Rebind<std::int32_t, F32>;
using I16 = hn::Repartition<std::int16_t, I32>;
using I8 = hn::Rebind<std::int8_t, I16>;
constexpr std::size_t kRows = 4;

// The pair of inputs in every lane.
HWY_INLINE hn::Vec<I16> Pair(const std::int16_t* in) {
  std::int32_t pair;
  std::memcpy(&pair, in, sizeof(pair));
  return hn::BitCast(I16(), hn::Set(I32(), pair));
}

// Adds the block's sum to `out`, or sets it; the last block is scaled.
struct BlockEnds {
  bool first;
  bool last;
};
HWY_INLINE void FinishSum(hn::Vec<I32> sum0, hn::Vec<I32> sum1, const float* scale, BlockEnds ends,
                          float* out) {
  const F32 d;
  auto total = hn::ConvertTo(d, hn::RearrangeToOddPlusEven(sum0, sum1));
  if (!ends.first) total = hn::Add(hn::LoadU(d, out), total);
  if (ends.last) total = hn::Mul(total, hn::LoadU(d, scale));
  hn::StoreU(total, d, out);
}

// Rows by two vectors of columns over the pairs of one block of inputs.
template <std::size_t kBlockRows>
HWY_INLINE void PredictBlock(const std::int8_t* weights, std::size_t padded, std::size_t pairs,
                             const std::int16_t* in, std::size_t in_stride, const float* scale,
                             BlockEnds ends, float* out, std::size_t out_stride) {
  const I32 d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<I32> a[kBlockRows];
  hn::Vec<I32> b[kBlockRows];
  hn::Vec<I32> a_odd[kBlockRows];  // used where a vector's products are split in halves
  hn::Vec<I32> b_odd[kBlockRows];
  for (std::size_t r = 0; r < kBlockRows; ++r) a[r] = b[r] = a_odd[r] = b_odd[r] = hn::Zero(d);
  for (std::size_t p = 0; p < pairs; ++p, weights += 2 * padded) {
    const auto w0 = hn::PromoteTo(I16(), hn::LoadU(I8(), weights));
    const auto w1 = hn::PromoteTo(I16(), hn::LoadU(I8(), weights + 2 * lanes));
    for (std::size_t r = 0; r < kBlockRows; ++r) {
      const auto x = Pair(in + r * in_stride + 2 * p);
      a[r] = hn::ReorderWidenMulAccumulate(d, w0, x, a[r], a_odd[r]);
      b[r] = hn::ReorderWidenMulAccumulate(d, w1, x, b[r], b_odd[r]);
    }
  }
  for (std::size_t r = 0; r < kBlockRows; ++r) {
    FinishSum(a[r], a_odd[r], scale, ends, out + r * out_stride);
    FinishSum(b[r], b_odd[r], scale + lanes, ends, out + r * out_stride + lanes);
  }
}

}  // namespace

void PredictVectors(const PackedPredictor& predictor, const std::int16_t* in, std::size_t in_stride,
                    std::size_t rows, float* out, std::size_t out_stride) {
  const std::size_t padded = PaddedColumns(predictor.columns);
  const std::size_t all = PaddedInputs(predictor.inputs) / 2;
  constexpr std::size_t kPairs = kPredictorBlock / 2;
  for (std::size_t pair = 0; pair < all; pair += kPairs) {
    const std::size_t pairs = HWY_MIN(kPairs, all - pair);
    const BlockEnds ends{pair == 0, pair + pairs == all};
    for (std::size_t c = 0; c < padded; c += 2 * hn::Lanes(I32())) {
      const std::int8_t* const weights = predictor.weights.data() + 2 * (pair * padded + c);
      const float* const scale = predictor.scale.data() + c;
      std::size_t row = 0;
      for (; row + kRows <= rows; row += kRows) {
        PredictBlock<kRows>(weights, padded, pairs, in + row * in_stride + 2 * pair, in_stride,
                            scale, ends, out + row * out_stride + c, out_stride);
      }
      for (; row < rows; ++row) {
        PredictBlock<1>(weights, padded, pairs, in + row * in_stride + 2 * pair, in_stride, scale,
                        ends, out + row * out_stride + c, out_stride);
      }
    }
  }
}

#endif

// Returns how many leading values it did.
std::size_t RoundVectors(const float* values, std::size_t count, std::int16_t* history) {
  const F32 d;
  const hn::Rebind<std::int16_t, F32> half;
  const auto limit = hn::Set(d, static_cast<float>(kHistoryLimit));
  const auto least = hn::Neg(limit);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    auto units = hn::Mul(hn::LoadU(d, values + i), hn::Set(d, 1.0F / kHistoryUnit));
    units = hn::IfThenElse(hn::Lt(units, limit), units, limit);
    units = hn::IfThenElse(hn::Gt(units, least), units, least);
    hn::StoreU(hn::DemoteTo(half, hn::NearestInt(units)), half, history + i);
  }
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(PredictVectors);
HWY_EXPORT(RoundVectors);

void PredictRows(const PackedPredictor& predictor, const std::int16_t* in, std::size_t in_stride,
                 std::size_t rows, float* out, std::size_t out_stride) {
  if (rows == 0) return;  // `out` may be null then
  if (UseScalarKernels()) {
    PredictRowsRef(predictor, in, in_stride, rows, out, out_stride);
  } else if (HasVnni()) {
    PredictRowsVnni(predictor, in, in_stride, rows, out, out_stride);
  } else {
    HWY_DYNAMIC_DISPATCH(PredictVectors)(predictor, in, in_stride, rows, out, out_stride);
  }
}

void RoundHistory(std::span<const float> values, std::int16_t* history) {
  if (UseScalarKernels()) return RoundHistoryRef(values, history);
  const std::size_t done =
      HWY_DYNAMIC_DISPATCH(RoundVectors)(values.data(), values.size(), history);
  RoundHistoryRef(values.subspan(done), history + done);
}

}  // namespace kvserve
#endif
