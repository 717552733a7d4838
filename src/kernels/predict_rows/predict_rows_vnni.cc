// As the vectors of predict_rows.cc, with eight rows in flight and one instruction for products and
// sum.
#include "kernels/predict_rows/predict_rows_x86.h"

#if defined(__x86_64__) && !defined(HWY_COMPILE_ONLY_SCALAR)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/isa/isa.h"

// Only this file's functions use it, behind HasVnni.
#define KVSERVE_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

namespace kvserve {
namespace {

constexpr std::size_t kRows = 8;
constexpr std::size_t kLanes = 16;
constexpr std::size_t kPairs = kPredictorBlock / 2;

struct BlockEnds {
  bool first;
  bool last;
};

KVSERVE_VNNI inline void FinishSum(__m512i sum, const float* scale, BlockEnds ends, float* out) {
  __m512 total = _mm512_cvtepi32_ps(sum);
  if (!ends.first) total = _mm512_add_ps(_mm512_loadu_ps(out), total);
  if (ends.last) total = _mm512_mul_ps(total, _mm512_loadu_ps(scale));
  _mm512_storeu_ps(out, total);
}

KVSERVE_VNNI inline __m512i Weights(const std::int8_t* weights) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)));
}

KVSERVE_VNNI inline __m512i Pair(const std::int16_t* in) {
  std::int32_t pair;
  std::memcpy(&pair, in, sizeof(pair));
  return _mm512_set1_epi32(pair);
}

template <std::size_t kBlockRows>
KVSERVE_VNNI inline void PredictBlock(const std::int8_t* weights, std::size_t padded,
                                      std::size_t pairs, const std::int16_t* in,
                                      std::size_t in_stride, const float* scale, BlockEnds ends,
                                      float* out, std::size_t out_stride) {
  __m512i a[kBlockRows];
  __m512i b[kBlockRows];
  for (std::size_t r = 0; r < kBlockRows; ++r) a[r] = b[r] = _mm512_setzero_si512();
  for (std::size_t p = 0; p < pairs; ++p, weights += 2 * padded) {
    const __m512i w0 = Weights(weights);
    const __m512i w1 = Weights(weights + 2 * kLanes);
    for (std::size_t r = 0; r < kBlockRows; ++r) {
      const __m512i x = Pair(in + r * in_stride + 2 * p);
      a[r] = _mm512_dpwssd_epi32(a[r], w0, x);
      b[r] = _mm512_dpwssd_epi32(b[r], w1, x);
    }
  }
  for (std::size_t r = 0; r < kBlockRows; ++r) {
    FinishSum(a[r], scale, ends, out + r * out_stride);
    FinishSum(b[r], scale + kLanes, ends, out + r * out_stride + kLanes);
  }
}

}  // namespace

bool HasVnni() {
  static const bool has = __builtin_cpu_supports("avx512vnni") != 0;
  return has && ActiveIsa() == "avx512";
}

KVSERVE_VNNI void PredictRowsVnni(const PackedPredictor& predictor, const std::int16_t* in,
                                  std::size_t in_stride, std::size_t rows, float* out,
                                  std::size_t out_stride) {
  const std::size_t padded = PaddedColumns(predictor.columns);
  const std::size_t all = PaddedInputs(predictor.inputs) / 2;
  for (std::size_t pair = 0; pair < all; pair += kPairs) {
    const std::size_t pairs = std::min(kPairs, all - pair);
    const BlockEnds ends{pair == 0, pair + pairs == all};
    for (std::size_t c = 0; c < padded; c += 2 * kLanes) {
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

}  // namespace kvserve

#else

namespace kvserve {

bool HasVnni() {
  return false;
}
void PredictRowsVnni(const PackedPredictor& predictor, const std::int16_t* in,
                     std::size_t in_stride, std::size_t rows, float* out, std::size_t out_stride) {
  PredictRowsRef(predictor, in, in_stride, rows, out, out_stride);
}

}  // namespace kvserve

#endif
