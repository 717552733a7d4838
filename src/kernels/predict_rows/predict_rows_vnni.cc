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

// Adds the products of a pair of inputs. Without the empty statement GCC 12 copies every sum from
// register to register and back, which costs a third of the speed.
KVSERVE_VNNI inline void AddPair(__m512i w0, __m512i w1, const std::int16_t* in, __m512i& a,
                                 __m512i& b) {
  const __m512i x = Pair(in);
  a = _mm512_dpwssd_epi32(a, w0, x);
  b = _mm512_dpwssd_epi32(b, w1, x);
  asm("" : "+v"(a), "+v"(b));
}

// Rows by two vectors of columns over the pairs of one block of inputs.
struct Block {
  const std::int8_t* weights;
  std::size_t padded;
  std::size_t pairs;
  const float* scale;
  BlockEnds ends;
};

KVSERVE_VNNI inline void Finish(const Block& block, __m512i a, __m512i b, float* out) {
  FinishSum(a, block.scale, block.ends, out);
  FinishSum(b, block.scale + kLanes, block.ends, out + kLanes);
}

KVSERVE_VNNI void PredictOne(const Block& block, const std::int16_t* in, float* out) {
  const std::int8_t* weights = block.weights;
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  for (std::size_t p = 0; p < block.pairs; ++p, weights += 2 * block.padded) {
    AddPair(Weights(weights), Weights(weights + 2 * kLanes), in + 2 * p, a, b);
  }
  Finish(block, a, b, out);
}

// Variables and no array, which that statement would keep in memory.
KVSERVE_VNNI void PredictEight(const Block& block, const std::int16_t* in, std::size_t in_stride,
                               float* out, std::size_t out_stride) {
  const std::int8_t* weights = block.weights;
  const std::int16_t* const in4 = in + 4 * in_stride;
  __m512i a0 = _mm512_setzero_si512();
  __m512i a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0;
  __m512i b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0, b6 = a0, b7 = a0;
  for (std::size_t p = 0; p < 2 * block.pairs; p += 2, weights += 2 * block.padded) {
    const __m512i w0 = Weights(weights);
    const __m512i w1 = Weights(weights + 2 * kLanes);
    AddPair(w0, w1, in + p, a0, b0);
    AddPair(w0, w1, in + p + in_stride, a1, b1);
    AddPair(w0, w1, in + p + 2 * in_stride, a2, b2);
    AddPair(w0, w1, in + p + 3 * in_stride, a3, b3);
    AddPair(w0, w1, in4 + p, a4, b4);
    AddPair(w0, w1, in4 + p + in_stride, a5, b5);
    AddPair(w0, w1, in4 + p + 2 * in_stride, a6, b6);
    AddPair(w0, w1, in4 + p + 3 * in_stride, a7, b7);
  }
  Finish(block, a0, b0, out);
  Finish(block, a1, b1, out + out_stride);
  Finish(block, a2, b2, out + 2 * out_stride);
  Finish(block, a3, b3, out + 3 * out_stride);
  Finish(block, a4, b4, out + 4 * out_stride);
  Finish(block, a5, b5, out + 5 * out_stride);
  Finish(block, a6, b6, out + 6 * out_stride);
  Finish(block, a7, b7, out + 7 * out_stride);
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
    for (std::size_t c = 0; c < padded; c += 2 * kLanes) {
      const Block block = {predictor.weights.data() + 2 * (pair * padded + c),
                           padded,
                           pairs,
                           predictor.scale.data() + c,
                           {pair == 0, pair + pairs == all}};
      const std::int16_t* from = in + 2 * pair;
      float* to = out + c;
      std::size_t row = 0;
      for (; row + 8 <= rows; row += 8, from += 8 * in_stride, to += 8 * out_stride) {
        PredictEight(block, from, in_stride, to, out_stride);
      }
      for (; row < rows; ++row, from += in_stride, to += out_stride) PredictOne(block, from, to);
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
