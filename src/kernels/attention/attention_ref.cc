#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/attention/softmax_steps.h"

namespace kvserve {

void KeyProductsRef(std::span<const float> queries, std::span<const float> packed, std::size_t dim,
                    std::span<float> products) {
  const std::size_t tokens = packed.size() / dim;
  for (std::size_t at = 0; at < products.size(); ++at) {
    const float* const query = queries.data() + at / tokens * dim;
    const std::size_t token = at % tokens;
    const float* const key = packed.data() + token / kKeyBlock * kKeyBlock * dim;
    float sum = 0.0F;
    for (std::size_t d = 0; d < dim; ++d) {
      sum += query[d] * key[d * kKeyBlock + token % kKeyBlock];
    }
    products[at] = sum;
  }
}

SoftmaxSum AddSoftmaxRef(std::span<float> logits, float scale, std::span<float> mass) {
  if (logits.empty()) return {};
  const float largest = *std::max_element(logits.begin(), logits.end());
  float sums[kSoftmaxSums] = {};
  ExpAndSum(logits, 0, largest, scale, sums);
  const float sum = FoldSums(sums);
  const float factor = 1.0F / sum;
  for (std::size_t i = 0; i < mass.size(); ++i) mass[i] += logits[i] * factor;
  return {largest, sum};
}

}  // namespace kvserve
