// Vectors lie along the columns, so that each sum keeps its order. Blocks of rows by two vectors
// stay in registers over up to 128 k; that part of the matrix is copied into one piece first, since
// the lines of a panel of columns lie so far apart that they displace each other in the first-level
// cache.
#include "kernels/gemm/gemm.h"

#include <algorithm>

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

using V32 = hn::Vec<F32>;

// Sums in flight hide the latency of additions, and each vector of the matrix serves many rows; as
// many as there are registers for.
constexpr std::size_t kRows = hn::MaxLanes(F32()) >= 16 ? 8 : 4;
constexpr std::size_t kDepth = 128;
constexpr std::size_t kPanelBytes = kDepth * 2 * HWY_MAX_BYTES;
constexpr std::size_t kFewRows = 8;  // that are not worth a copy

// Some consecutive k of some columns.
struct Panel {
  const float* first;
  std::size_t stride;  // from k to k + 1
  std::size_t depth;
  bool begins;  // at k = 0; otherwise sums go on from what is there
};

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

// kBlockRows rows by two vectors.
template <std::size_t kBlockRows>
HWY_INLINE void WideBlock(const float* in, std::size_t in_stride, const Panel& panel, float* out,
                          std::size_t out_stride) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  V32 a[kBlockRows];
  V32 b[kBlockRows];
  for (std::size_t r = 0; r < kBlockRows; ++r) {
    a[r] = panel.begins ? hn::Zero(d) : hn::LoadU(d, out + r * out_stride);
    b[r] = panel.begins ? hn::Zero(d) : hn::LoadU(d, out + r * out_stride + lanes);
  }
  const float* matrix = panel.first;
  for (std::size_t k = 0; k < panel.depth; ++k, matrix += panel.stride) {
    const auto m0 = hn::LoadU(d, matrix);
    const auto m1 = hn::LoadU(d, matrix + lanes);
    for (std::size_t r = 0; r < kBlockRows; ++r) {
      const auto x = hn::Set(d, in[r * in_stride + k]);
      a[r] = hn::Add(a[r], hn::Mul(x, m0));
      b[r] = hn::Add(b[r], hn::Mul(x, m1));
    }
  }
  for (std::size_t r = 0; r < kBlockRows; ++r) {
    hn::StoreU(a[r], d, out + r * out_stride);
    hn::StoreU(b[r], d, out + r * out_stride + lanes);
  }
}

// All rows by two vectors.
HWY_INLINE void WideRows(const float* in, std::size_t rows, std::size_t in_stride,
                         const Panel& panel, float* out, std::size_t out_stride) {
  std::size_t row = 0;
  for (; row + kRows <= rows; row += kRows) {
    WideBlock<kRows>(in + row * in_stride, in_stride, panel, out + row * out_stride, out_stride);
  }
  for (; row < rows; ++row) {
    WideBlock<1>(in + row * in_stride, in_stride, panel, out + row * out_stride, out_stride);
  }
}

HWY_INLINE Panel Copied(const Panel& panel, float* to) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t k = 0; k < panel.depth; ++k) {
    const float* const from = panel.first + k * panel.stride;
    hn::Store(hn::LoadU(d, from), d, to + 2 * k * lanes);
    hn::Store(hn::LoadU(d, from + lanes), d, to + (2 * k + 1) * lanes);
  }
  return {to, 2 * lanes, panel.depth, panel.begins};
}

}  // namespace

// Returns how many leading columns it did.
std::size_t MultiplyVectors(const float* in, std::size_t rows, std::size_t depth,
                            const float* matrix, std::size_t width, float* out,
                            std::size_t out_stride) {
  const std::size_t lanes = hn::Lanes(F32());
  HWY_ALIGN float copy[kPanelBytes / sizeof(float)];
  std::size_t j = 0;
  for (; j + 2 * lanes <= width; j += 2 * lanes) {
    for (std::size_t k = 0; k < depth; k += kDepth) {
      Panel panel = {matrix + k * width + j, width, std::min(kDepth, depth - k), k == 0};
      if (rows >= kFewRows) panel = Copied(panel, copy);
      WideRows(in + k, rows, depth, panel, out + j, out_stride);
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
  if (rows == 0) return;  // `out` may be null then
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
