// Rows by memcpy. A transposed side goes in square tiles of 16-byte vectors: log2(lanes) rounds of
// interleaving vector i with vector i + lanes / 2 transpose a tile of any element size. The last
// tile of a row or column overlaps the one before it instead of leaving a rest.
#include "kernels/strided_copy/strided_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/strided_copy/strided_copy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef KVSERVE_STRIDED_COPY_MATRIX
#define KVSERVE_STRIDED_COPY_MATRIX
namespace kvserve {
namespace {

// out[column][row] = in[row][column]; strides in elements.
struct MatrixCopy {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t in_stride = 0;
  std::int64_t out_stride = 0;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
};

}  // namespace
}  // namespace kvserve
#endif

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
void TransposeElements(const MatrixCopy& copy) {
  for (std::uint32_t column = 0; column < copy.columns; ++column) {
    for (std::uint32_t row = 0; row < copy.rows; ++row) {
      std::memcpy(copy.out + (column * copy.out_stride + row) * std::int64_t{sizeof(T)},
                  copy.in + (row * copy.in_stride + column) * std::int64_t{sizeof(T)}, sizeof(T));
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
template <typename T>
constexpr std::uint32_t kLanes = 16 / sizeof(T);

template <typename T>
HWY_INLINE void TransposeTile(const T* HWY_RESTRICT in, std::int64_t in_stride, T* HWY_RESTRICT out,
                              std::int64_t out_stride) {
  const hn::FixedTag<T, kLanes<T>> d;
  constexpr std::uint32_t kHalf = kLanes<T> / 2;
  hn::Vec<decltype(d)> tile[kLanes<T>];
  hn::Vec<decltype(d)> next[kLanes<T>];
  for (std::uint32_t i = 0; i < kLanes<T>; ++i) tile[i] = hn::LoadU(d, in + i * in_stride);
  for (std::uint32_t width = 1; width < kLanes<T>; width *= 2) {
    for (std::uint32_t i = 0; i < kHalf; ++i) {
      next[2 * i] = hn::InterleaveLower(d, tile[i], tile[i + kHalf]);
      next[2 * i + 1] = hn::InterleaveUpper(d, tile[i], tile[i + kHalf]);
    }
    for (std::uint32_t i = 0; i < kLanes<T>; ++i) tile[i] = next[i];
  }
  for (std::uint32_t i = 0; i < kLanes<T>; ++i) hn::StoreU(tile[i], d, out + i * out_stride);
}

// Walks along the side whose rows are farther apart, so that the other, a block of the engine,
// stays in the first-level cache.
template <typename T>
void TransposeMatrix(const MatrixCopy& copy) {
  constexpr std::uint32_t kSide = kLanes<T>;
  if (copy.rows < kSide || copy.columns < kSide) return TransposeElements<T>(copy);
  const auto* in = reinterpret_cast<const T*>(copy.in);
  auto* out = reinterpret_cast<T*>(copy.out);
  const bool by_columns = copy.out_stride >= copy.in_stride;
  const std::uint32_t outer_end = by_columns ? copy.columns : copy.rows;
  const std::uint32_t inner_end = by_columns ? copy.rows : copy.columns;
  for (std::uint32_t i = 0; i < outer_end; i += kSide) {
    const std::uint32_t outer = std::min(i, outer_end - kSide);
    for (std::uint32_t k = 0; k < inner_end; k += kSide) {
      const std::uint32_t inner = std::min(k, inner_end - kSide);
      const std::uint32_t row = by_columns ? inner : outer;
      const std::uint32_t column = by_columns ? outer : inner;
      TransposeTile(in + row * copy.in_stride + column, copy.in_stride,
                    out + column * copy.out_stride + row, copy.out_stride);
    }
  }
}
#else
template <typename T>
void TransposeMatrix(const MatrixCopy& copy) {
  TransposeElements<T>(copy);
}
#endif

}  // namespace

void Transpose(const MatrixCopy& copy, std::size_t element_bytes) {
  switch (element_bytes) {
    case 1: return TransposeMatrix<std::uint8_t>(copy);
    case 2: return TransposeMatrix<std::uint16_t>(copy);
    default: return TransposeMatrix<std::uint32_t>(copy);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(Transpose);

namespace {

void CopyRows(const ConstPlaneView& from, const PlaneView& to) {
  const std::size_t row_bytes = from.dim * DTypeBytes(from.dtype);
  if (from.contiguous() && to.contiguous()) {
    std::memcpy(to.data, from.data, from.values() * DTypeBytes(from.dtype));
    return;
  }
  const bool heads_together = from.head_stride == from.dim && to.head_stride == to.dim;
  const std::uint32_t heads = heads_together ? 1 : from.heads;
  const std::size_t run_bytes = heads_together ? from.heads * row_bytes : row_bytes;
  for (std::uint32_t token = 0; token < from.tokens; ++token) {
    for (std::uint32_t head = 0; head < heads; ++head) {
      std::memcpy(to.at(token, head, 0), from.at(token, head, 0), run_bytes);
    }
  }
}

// One side has tokens together where the other has channels together.
void CopyTransposed(const ConstPlaneView& from, const PlaneView& to) {
  const bool gathers = to.dim_stride == 1;  // `from` is the transposed side
  for (std::uint32_t head = 0; head < from.heads; ++head) {
    MatrixCopy copy{from.at(0, head, 0), to.at(0, head, 0)};
    copy.in_stride = gathers ? from.dim_stride : from.token_stride;
    copy.out_stride = gathers ? to.token_stride : to.dim_stride;
    copy.rows = gathers ? from.dim : from.tokens;
    copy.columns = gathers ? from.tokens : from.dim;
    HWY_DYNAMIC_DISPATCH(Transpose)(copy, DTypeBytes(from.dtype));
  }
}

}  // namespace

void CopyPlane(const ConstPlaneView& from, const PlaneView& to) {
  if (from.values() == 0) return;
  if (UseScalarKernels()) return CopyPlaneRef(from, to);
  if (from.dim_stride == 1 && to.dim_stride == 1) return CopyRows(from, to);
  if ((from.token_stride == 1 && to.dim_stride == 1) ||
      (from.dim_stride == 1 && to.token_stride == 1)) {
    return CopyTransposed(from, to);
  }
  CopyPlaneRef(from, to);
}

}  // namespace kvserve
#endif
