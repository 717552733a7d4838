#include "kernels/attention/attention.h"

#include <algorithm>

#include "kernels/attention/softmax_steps.h"
#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Divides 16, so that element i meets sum i mod 16 and two vectors divide a block of keys.
using F32 = hn::CappedTag<float, kSoftmaxSums>;
using V32 = hn::Vec<F32>;
constexpr std::size_t kLanes = hn::MaxLanes(F32());

// Lanes are tokens. Two vectors of each of several queries keep enough sums in flight to hide the
// latency of the additions, and a block of keys stays in the first-level cache for all queries.
template <std::size_t kRows>
HWY_INLINE void BlockProducts(const float* queries, const float* block, std::size_t dim,
                              float* products, std::size_t tokens) {
  const F32 d;
  for (std::size_t lane = 0; lane < kKeyBlock; lane += 2 * kLanes) {
    V32 low[kRows];
    V32 high[kRows];
    for (std::size_t r = 0; r < kRows; ++r) low[r] = high[r] = hn::Zero(d);
    for (std::size_t i = 0; i < dim; ++i) {
      const float* const keys = block + i * kKeyBlock + lane;
      const auto first = hn::LoadU(d, keys);
      const auto second = hn::LoadU(d, keys + kLanes);
      for (std::size_t r = 0; r < kRows; ++r) {
        const auto query = hn::Set(d, queries[r * dim + i]);
        low[r] = hn::Add(low[r], hn::Mul(query, first));
        high[r] = hn::Add(high[r], hn::Mul(query, second));
      }
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      hn::StoreU(low[r], d, products + r * tokens + lane);
      hn::StoreU(high[r], d, products + r * tokens + lane + kLanes);
    }
  }
}

// Adds to the forms of two vectors of tokens what kRows rows of the matrix give.
template <std::size_t kRows>
HWY_INLINE void AddForms(const float* rows, const float* block, std::size_t dim, std::size_t first,
                         V32& form0, V32& form1) {
  const F32 d;
  V32 low[kRows];
  V32 high[kRows];
  for (std::size_t r = 0; r < kRows; ++r) low[r] = high[r] = hn::Zero(d);
  for (std::size_t j = 0; j < dim; ++j) {
    const auto key0 = hn::LoadU(d, block + j * kKeyBlock);
    const auto key1 = hn::LoadU(d, block + j * kKeyBlock + kLanes);
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, rows[r * dim + j]);
      low[r] = hn::Add(low[r], hn::Mul(factor, key0));
      high[r] = hn::Add(high[r], hn::Mul(factor, key1));
    }
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    const float* const keys = block + (first + r) * kKeyBlock;
    form0 = hn::Add(form0, hn::Mul(hn::LoadU(d, keys), low[r]));
    form1 = hn::Add(form1, hn::Mul(hn::LoadU(d, keys + kLanes), high[r]));
  }
}

// As SoftmaxExp.
HWY_INLINE V32 Exp(V32 x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  x = hn::Max(x, hn::Set(d, kLowestExponent));
  const auto shifted = hn::Add(hn::Mul(x, hn::Set(d, kLog2E)), hn::Set(d, kRounder));
  const auto n = hn::Sub(shifted, hn::Set(d, kRounder));
  const auto r =
      hn::Sub(hn::Sub(x, hn::Mul(n, hn::Set(d, kLn2High))), hn::Mul(n, hn::Set(d, kLn2Low)));
  auto series = hn::Set(d, kSeries[0]);
  for (std::size_t i = 1; i < std::size(kSeries); ++i) {
    series = hn::Add(hn::Mul(series, r), hn::Set(d, kSeries[i]));
  }
  const auto exponent = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, kRounderBits));
  return hn::Mul(series, hn::BitCast(d, hn::ShiftLeft<23>(exponent)));
}

}  // namespace

void ProductVectors(const float* queries, std::size_t rows, const float* packed, std::size_t tokens,
                    std::size_t dim, float* products) {
  for (std::size_t begin = 0; begin < tokens; begin += kKeyBlock) {
    const float* const block = packed + begin * dim;
    std::size_t row = 0;
    for (; row + 4 <= rows; row += 4) {
      BlockProducts<4>(queries + row * dim, block, dim, products + row * tokens + begin, tokens);
    }
    for (; row < rows; ++row) {
      BlockProducts<1>(queries + row * dim, block, dim, products + row * tokens + begin, tokens);
    }
  }
}

// Of one block of tokens.
void FormVectors(const float* matrix, const float* block, std::size_t dim, float* forms) {
  const F32 d;
  for (std::size_t lane = 0; lane < kKeyBlock; lane += 2 * kLanes) {
    auto form0 = hn::Zero(d);
    auto form1 = hn::Zero(d);
    std::size_t i = 0;
    for (; i + 4 <= dim; i += 4) {
      AddForms<4>(matrix + i * dim, block + lane, dim, i, form0, form1);
    }
    for (; i < dim; ++i) AddForms<1>(matrix + i * dim, block + lane, dim, i, form0, form1);
    hn::StoreU(form0, d, forms + lane);
    hn::StoreU(form1, d, forms + lane + kLanes);
  }
}

// Of one block of tokens.
void SquareVectors(const float* block, std::size_t dim, float* squares) {
  const F32 d;
  for (std::size_t lane = 0; lane < kKeyBlock; lane += kLanes) {
    auto sum = hn::Zero(d);
    for (std::size_t i = 0; i < dim; ++i) {
      const auto key = hn::LoadU(d, block + i * kKeyBlock + lane);
      sum = hn::Add(sum, hn::Mul(key, key));
    }
    hn::StoreU(sum, d, squares + lane);
  }
}

// The 32 sums of one channel; `channel` is its first block's.
void WeightedVectors(const float* weights, std::size_t tokens, const float* channel,
                     std::size_t dim, float* partial) {
  const F32 d;
  constexpr std::size_t kVectors = kKeyBlock / kLanes;
  V32 sums[kVectors];
  for (std::size_t k = 0; k < kVectors; ++k) sums[k] = hn::Zero(d);
  for (std::size_t begin = 0; begin < tokens; begin += kKeyBlock) {
    const float* const keys = channel + begin * dim;
    for (std::size_t k = 0; k < kVectors; ++k) {
      const auto weight = hn::LoadU(d, weights + begin + k * kLanes);
      sums[k] = hn::Add(sums[k], hn::Mul(weight, hn::LoadU(d, keys + k * kLanes)));
    }
  }
  for (std::size_t k = 0; k < kVectors; ++k) hn::StoreU(sums[k], d, partial + k * kLanes);
}

// Of at least one value.
float LargestOf(const float* values, std::size_t count) {
  const F32 d;
  const std::size_t whole = count / kLanes * kLanes;
  float largest = values[0];
  if (whole > 0) {
    auto most = hn::LoadU(d, values);
    for (std::size_t i = kLanes; i < whole; i += kLanes) {
      most = hn::Max(most, hn::LoadU(d, values + i));
    }
    largest = hn::GetLane(hn::MaxOfLanes(d, most));
  }
  for (std::size_t i = whole; i < count; ++i) largest = std::max(largest, values[i]);
  return largest;
}

// Over the leading multiple of 16 elements; returns how many that were.
std::size_t ExpVectors(float* logits, std::size_t count, float largest, float scale, float* sums) {
  const F32 d;
  constexpr std::size_t kVectors = kSoftmaxSums / kLanes;
  const std::size_t whole = count / kSoftmaxSums * kSoftmaxSums;
  V32 partial[kVectors];
  for (std::size_t k = 0; k < kVectors; ++k) partial[k] = hn::Zero(d);
  for (std::size_t i = 0; i < whole; i += kSoftmaxSums) {
    for (std::size_t k = 0; k < kVectors; ++k) {
      float* const at = logits + i + k * kLanes;
      const auto below = hn::Sub(hn::LoadU(d, at), hn::Set(d, largest));
      const auto value = Exp(hn::Mul(below, hn::Set(d, scale)));
      hn::StoreU(value, d, at);
      partial[k] = hn::Add(partial[k], value);
    }
  }
  for (std::size_t k = 0; k < kVectors; ++k) hn::StoreU(partial[k], d, sums + k * kLanes);
  return whole;
}

// Returns how many leading elements it did.
std::size_t AddScaledVectors(const float* values, std::size_t count, float factor, float* mass) {
  const F32 d;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, values + i), hn::Set(d, factor));
    hn::StoreU(hn::Add(hn::LoadU(d, mass + i), scaled), d, mass + i);
  }
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(ProductVectors);
HWY_EXPORT(FormVectors);
HWY_EXPORT(SquareVectors);
HWY_EXPORT(WeightedVectors);
HWY_EXPORT(LargestOf);
HWY_EXPORT(ExpVectors);
HWY_EXPORT(AddScaledVectors);

void PackKeys(std::span<const float> rows, std::size_t heads, std::size_t head, std::size_t dim,
              std::span<float> packed) {
  const std::size_t tokens = rows.size() / (heads * dim);
  for (std::size_t begin = 0; begin < packed.size() / dim; begin += kKeyBlock) {
    float* const block = packed.data() + begin * dim;
    const std::size_t held = std::min(kKeyBlock, tokens - begin);
    if (held < kKeyBlock) std::fill_n(block, kKeyBlock * dim, 0.0F);
    for (std::size_t t = 0; t < held; ++t) {
      const float* const key = rows.data() + ((begin + t) * heads + head) * dim;
      for (std::size_t d = 0; d < dim; ++d) block[d * kKeyBlock + t] = key[d];
    }
  }
}

void KeyProducts(std::span<const float> queries, std::span<const float> packed, std::size_t dim,
                 std::span<float> products) {
  if (UseScalarKernels()) return KeyProductsRef(queries, packed, dim, products);
  HWY_DYNAMIC_DISPATCH(ProductVectors)
  (queries.data(), queries.size() / dim, packed.data(), packed.size() / dim, dim, products.data());
}

void QuadraticForms(std::span<const float> matrix, std::span<const float> packed, std::size_t dim,
                    std::span<float> forms) {
  if (UseScalarKernels()) return QuadraticFormsRef(matrix, packed, dim, forms);
  for (std::size_t begin = 0; begin < forms.size(); begin += kKeyBlock) {
    HWY_DYNAMIC_DISPATCH(FormVectors)
    (matrix.data(), packed.data() + begin * dim, dim, forms.data() + begin);
  }
}

void SumSquares(std::span<const float> packed, std::size_t dim, std::span<float> squares) {
  if (UseScalarKernels()) return SumSquaresRef(packed, dim, squares);
  for (std::size_t begin = 0; begin < squares.size(); begin += kKeyBlock) {
    HWY_DYNAMIC_DISPATCH(SquareVectors)
    (packed.data() + begin * dim, dim, squares.data() + begin);
  }
}

void SumWeighted(std::span<const float> weights, std::span<const float> packed,
                 std::span<float> sums) {
  if (UseScalarKernels()) return SumWeightedRef(weights, packed, sums);
  for (std::size_t c = 0; c < sums.size(); ++c) {
    float partial[kKeyBlock];
    HWY_DYNAMIC_DISPATCH(WeightedVectors)
    (weights.data(), weights.size(), packed.data() + c * kKeyBlock, sums.size(), partial);
    sums[c] = 0.0F;
    for (const float sum : partial) sums[c] += sum;
  }
}

SoftmaxSum AddSoftmax(std::span<float> logits, float scale, std::span<float> mass) {
  if (UseScalarKernels()) return AddSoftmaxRef(logits, scale, mass);
  if (logits.empty()) return {};
  const float largest = HWY_DYNAMIC_DISPATCH(LargestOf)(logits.data(), logits.size());
  float sums[kSoftmaxSums] = {};
  const std::size_t done =
      HWY_DYNAMIC_DISPATCH(ExpVectors)(logits.data(), logits.size(), largest, scale, sums);
  ExpAndSum(logits, done, largest, scale, sums);
  const float sum = FoldSums(sums);
  const float factor = 1.0F / sum;
  std::size_t i =
      HWY_DYNAMIC_DISPATCH(AddScaledVectors)(logits.data(), logits.size(), factor, mass.data());
  for (; i < mass.size(); ++i) mass[i] += logits[i] * factor;
  return {largest, sum};
}

}  // namespace kvserve
#endif
