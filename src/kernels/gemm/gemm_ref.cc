#include "kernels/gemm/gemm.h"

namespace kvserve {

void MultiplyRowsRef(std::span<const float> in, std::size_t depth, std::span<const float> matrix,
                     std::size_t width, float* out, std::size_t out_stride) {
  for (std::size_t at = 0; at < in.size(); at += depth, out += out_stride) {
    for (std::size_t j = 0; j < width; ++j) {
      float sum = 0.0F;
      for (std::size_t k = 0; k < depth; ++k) sum += in[at + k] * matrix[k * width + j];
      out[j] = sum;
    }
  }
}

}  // namespace kvserve
