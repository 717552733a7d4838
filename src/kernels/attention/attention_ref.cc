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

void QuadraticFormsRef(std::span<const float> matrix, std::span<const float> packed,
                       std::size_t dim, std::span<float> forms) {
  for (std::size_t token = 0; token < forms.size(); ++token) {
    const float* const key =
        packed.data() + token / kKeyBlock * kKeyBlock * dim + token % kKeyBlock;
    float form = 0.0F;
    for (std::size_t i = 0; i < dim; ++i) {
      float sum = 0.0F;
      for (std::size_t j = 0; j < dim; ++j) sum += matrix[i * dim + j] * key[j * kKeyBlock];
      form += key[i * kKeyBlock] * sum;
    }
    forms[token] = form;
  }
}

void SumSquaresRef(std::span<const float> packed, std::size_t dim, std::span<float> squares) {
  for (std::size_t token = 0; token < squares.size(); ++token) {
    const float* const key =
        packed.data() + token / kKeyBlock * kKeyBlock * dim + token % kKeyBlock;
    float sum = 0.0F;
    for (std::size_t d = 0; d < dim; ++d) sum += key[d * kKeyBlock] * key[d * kKeyBlock];
    squares[token] = sum;
  }
}

void SumWeightedRef(std::span<const float> weights, std::span<const float> packed,
                    std::span<float> sums) {
  for (std::size_t d = 0; d < sums.size(); ++d) {
    float partial[kKeyBlock] = {};
    for (std::size_t token = 0; token < weights.size(); ++token) {
      const float* const block = packed.data() + token / kKeyBlock * kKeyBlock * sums.size();
      partial[token % kKeyBlock] += weights[token] * block[d * kKeyBlock + token % kKeyBlock];
    }
    sums[d] = 0.0F;
    for (const float sum : partial) sums[d] += sum;
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
