// Constant-geometry form: each pass reads (i, i + n/2) and writes (2i, 2i + 1), so that every pass
// is the same whole-vector loop; log2(n) passes rotate the index bits back to natural order. The
// additions are those of the in-place form with strides n/2 .. 1, hence the same bits.
#include "kernels/hadamard/hadamard.h"

#include <bit>
#include <cmath>
#include <utility>

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hadamard/hadamard.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;

// One pass over n values; n is at least two vectors.
HWY_INLINE void Pass(const float* HWY_RESTRICT in, float* HWY_RESTRICT out, std::size_t n) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  for (std::size_t i = 0; i < n / 2; i += lanes) {
    const auto a = hn::LoadU(df, in + i);
    const auto b = hn::LoadU(df, in + i + n / 2);
    hn::StoreInterleaved2(hn::Add(a, b), hn::Sub(a, b), df, out + 2 * i);
  }
}

void PassSmall(const float* HWY_RESTRICT in, float* HWY_RESTRICT out, std::size_t n) {
  for (std::size_t i = 0; i < n / 2; ++i) {
    const float a = in[i];
    const float b = in[i + n / 2];
    out[2 * i] = a + b;
    out[2 * i + 1] = a - b;
  }
}

// All passes over a part already in `values`; `scratch` holds n values. Ends in `values`.
void TransformPart(float* values, float* scratch, std::size_t n) {
  float* in = values;
  float* out = scratch;
  const bool whole_vectors = n >= 2 * hn::Lanes(F32());
  for (std::size_t left = n; left > 1; left /= 2) {
    if (whole_vectors) {
      Pass(in, out, n);
    } else {
      PassSmall(in, out, n);
    }
    std::swap(in, out);
  }
  if (in != values) {
    for (std::size_t i = 0; i < n; ++i) values[i] = in[i];
  }
}

// values[i] = (values[i] ^ signs[i]) * scale; a null `signs` leaves the sign.
void Scale(float* values, const std::uint32_t* signs, float scale, std::size_t n) {
  const F32 df;
  const U32 du;
  const std::size_t lanes = hn::Lanes(df);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto v = hn::LoadU(df, values + i);
    if (signs != nullptr) v = hn::Xor(v, hn::BitCast(df, hn::LoadU(du, signs + i)));
    hn::StoreU(hn::Mul(v, hn::Set(df, scale)), df, values + i);
  }
  for (; i < n; ++i) {
    const auto sign = signs != nullptr ? signs[i] : 0U;
    values[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[i]) ^ sign) * scale;
  }
}

}  // namespace

void TransformRows(float* values, std::size_t count, const std::uint32_t* signs,
                   std::size_t sign_count, std::size_t dim, bool forward, float* scratch) {
  for (std::size_t at = 0; at < count; at += dim) {
    const std::uint32_t* head_signs = signs + at % sign_count;
    for (std::size_t begin = 0; begin < dim;) {
      const std::size_t n = std::bit_floor(dim - begin);
      const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
      float* part = values + at + begin;
      Scale(part, forward ? head_signs + begin : nullptr, scale, n);
      TransformPart(part, scratch, n);
      if (!forward) Scale(part, head_signs + begin, 1.0F, n);
      begin += n;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(TransformRows);

namespace {

void Dispatch(std::span<float> values, std::span<const std::uint32_t> signs, std::uint32_t dim,
              bool forward) {
  std::vector<float> scratch(std::bit_floor(dim));
  HWY_DYNAMIC_DISPATCH(TransformRows)
  (values.data(), values.size(), signs.data(), signs.size(), dim, forward, scratch.data());
}

}  // namespace

void HadamardForward(std::span<float> values, std::span<const std::uint32_t> signs,
                     std::uint32_t dim) {
  if (UseScalarKernels()) return HadamardForwardRef(values, signs, dim);
  Dispatch(values, signs, dim, true);
}

void HadamardInverse(std::span<float> values, std::span<const std::uint32_t> signs,
                     std::uint32_t dim) {
  if (UseScalarKernels()) return HadamardInverseRef(values, signs, dim);
  Dispatch(values, signs, dim, false);
}

}  // namespace kvserve
#endif
