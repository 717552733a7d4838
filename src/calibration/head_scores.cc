#include "calibration/head_scores.h"

#include <algorithm>
#include <cmath>

#include "kernels/rotate/rotate.h"

namespace kvserve {
namespace {

// Mean over j of a_0 + ... + a_j, a the softmax of the logits.
double MeanCumulativeSum(std::span<const double> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  double sums = 0;
  for (const double logit : logits) {
    sum += std::exp(logit - largest);
    sums += sum;
  }
  return sums / sum / static_cast<double>(logits.size());
}

}  // namespace

std::vector<double> HeadScores(const LayerGeometry& layer, std::span<const float> mean_queries,
                               std::span<const float> mean_keys, std::uint32_t tokens) {
  const std::uint32_t dim = layer.k_dim;
  if (layer.window_tokens > 0) tokens = std::min(tokens, layer.window_tokens);
  std::vector<std::uint64_t> turns(RopePairs(dim));
  RopeTurns(layer.rope_theta, dim, turns);
  std::vector<float> keys;
  keys.reserve(tokens * mean_keys.size());
  for (std::uint32_t t = 0; t < tokens; ++t) {
    keys.insert(keys.end(), mean_keys.begin(), mean_keys.end());
  }
  ApplyRope(keys, {layer.rope_style, dim, layer.kv_heads, 0, turns});
  std::vector<float> queries(mean_queries.begin(), mean_queries.end());
  const auto heads = static_cast<std::uint32_t>(queries.size() / dim);
  ApplyRope(queries, {layer.rope_style, dim, heads, tokens - 1, turns});

  std::vector<double> scores(layer.kv_heads);
  std::vector<double> logits(tokens);
  const std::uint32_t group = heads / layer.kv_heads;
  for (std::uint32_t head = 0; head < heads; ++head) {
    const float* const query = queries.data() + std::size_t{head} * dim;
    for (std::uint32_t t = 0; t < tokens; ++t) {
      const float* const key = keys.data() + t * mean_keys.size() + std::size_t{head / group} * dim;
      double product = 0;
      for (std::uint32_t d = 0; d < dim; ++d) product += double{query[d]} * key[d];
      logits[t] = product / std::sqrt(static_cast<double>(dim));
    }
    scores[head / group] += MeanCumulativeSum(logits) / group;
  }
  return scores;
}

}  // namespace kvserve
