// Vectors lie along the columns, so that each sum keeps its order. Blocks of four rows by two
// vectors stay in registers over the whole depth; the panel of the matrix that they need (128 bytes
// per k) stays in the first-level cache while all rows pass.
#include "kernels/gemm/gemm.h"

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;

constexpr std::size_t kRows = 4;

// One row by one vector.
HWY_INLINE void SingleBlock(const float* in, std::size_t depth, const float* matrix,
                            std::size_t width, float* out) {
  const F32 d;
  auto sum = hn::Zero(d);
  for (std::size_t k = 0; k < depth; ++k) {
    sum = hn::Add(sum, hn::Mul(hn::Set(d, in[k]), hn::LoadU(d, matrix + k * width)));
  }
  hn::StoreU(sum, d, out);
}

// Four rows by two vectors.
HWY_INLINE void WideBlock(const float* in, std::size_t depth, const float* matrix,
                          std::size_t width, float* out, std::size_t out_stride) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  auto a0 = hn::Zero(d), a1 = hn::Zero(d), a2 = hn::Zero(d), a3 = hn::Zero(d);
  auto b0 = hn::Zero(d), b1 = hn::Zero(d), b2 = hn::Zero(d), b3 = hn::Zero(d);
  for (std::size_t k = 0; k < depth; ++k) {
    const auto m0 = hn::LoadU(d, matrix + k * width);
    const auto m1 = hn::LoadU(d, matrix + k * width + lanes);
    const auto x0 = hn::Set(d, in[k]);
    a0 = hn::Add(a0, hn::Mul(x0, m0));
    b0 = hn::Add(b0, hn::Mul(x0, m1));
    const auto x1 = hn::Set(d, in[depth + k]);
    a1 = hn::Add(a1, hn::Mul(x1, m0));
    b1 = hn::Add(b1, hn::Mul(x1, m1));
    const auto x2 = hn::Set(d, in[2 * depth + k]);
    a2 = hn::Add(a2, hn::Mul(x2, m0));
    b2 = hn::Add(b2, hn::Mul(x2, m1));
    const auto x3 = hn::Set(d, in[3 * depth + k]);
    a3 = hn::Add(a3, hn::Mul(x3, m0));
    b3 = hn::Add(b3, hn::Mul(x3, m1));
  }
  hn::StoreU(a0, d, out);
  hn::StoreU(b0, d, out + lanes);
  hn::StoreU(a1, d, out + out_stride);
  hn::StoreU(b1, d, out + out_stride + lanes);
  hn::StoreU(a2, d, out + 2 * out_stride);
  hn::StoreU(b2, d, out + 2 * out_stride + lanes);
  hn::StoreU(a3, d, out + 3 * out_stride);
  hn::StoreU(b3, d, out + 3 * out_stride + lanes);
}

}  // namespace

// Returns how many leading columns it did.
std::size_t MultiplyVectors(const float* in, std::size_t rows, std::size_t depth,
                            const float* matrix, std::size_t width, float* out,
                            std::size_t out_stride) {
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t j = 0;
  for (; j + 2 * lanes <= width; j += 2 * lanes) {
    std::size_t row = 0;
    for (; row + kRows <= rows; row += kRows) {
      WideBlock(in + row * depth, depth, matrix + j, width, out + row * out_stride + j, out_stride);
    }
    for (; row < rows; ++row) {
      SingleBlock(in + row * depth, depth, matrix + j, width, out + row * out_stride + j);
      SingleBlock(in + row * depth, depth, matrix + j + lanes, width,
                  out + row * out_stride + j + lanes);
    }
  }
  for (; j + lanes <= width; j += lanes) {
    for (std::size_t row = 0; row < rows; ++row) {
      SingleBlock(in + row * depth, depth, matrix + j, width, out + row * out_stride + j);
    }
  }
  return j;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(MultiplyVectors);

void MultiplyRows(std::span<const float> in, std::size_t depth, std::span<const float> matrix,
                  std::size_t width, float* out, std::size_t out_stride) {
  if (UseScalarKernels()) return MultiplyRowsRef(in, depth, matrix, width, out, out_stride);
  const std::size_t rows = in.size() / depth;
  const std::size_t done = HWY_DYNAMIC_DISPATCH(MultiplyVectors)(
      in.data(), rows, depth, matrix.data(), width, out, out_stride);
  for (std::size_t row = 0; row < rows && done < width; ++row) {
    for (std::size_t j = done; j < width; ++j) {
      float sum = 0.0F;
      for (std::size_t k = 0; k < depth; ++k) sum += in[row * depth + k] * matrix[k * width + j];
      out[row * out_stride + j] = sum;
    }
  }
}

}  // namespace kvserve
#endif
