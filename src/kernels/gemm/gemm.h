// Product of a tall matrix of rows with a square or other small matrix.
#pragma once

#include <cstddef>
#include <span>

namespace kvserve {

// out[r * out_stride + j] = sum over k of in[r, k] * matrix[k, j] for j below `width`. `in` is
// [row, depth] and `matrix` [depth, width], both without gaps; depth and width are 1 or more, and
// out_stride at least width. `out` overlaps neither. Bit-identical on every instruction set: sums
// start at 0 and take k in ascending order, each product and each sum rounded alone, so that the
// error is at most depth * 2^-23 * sum of abs(in * matrix). Allocates nothing.
void MultiplyRows(std::span<const float> in, std::size_t depth, std::span<const float> matrix,
                  std::size_t width, float* out, std::size_t out_stride);

// Oracle.
void MultiplyRowsRef(std::span<const float> in, std::size_t depth, std::span<const float> matrix,
                     std::size_t width, float* out, std::size_t out_stride);

}  // namespace kvserve
