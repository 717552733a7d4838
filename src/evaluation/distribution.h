// Next-token distributions compared with a reference: KL divergence, top-1 agreement, likelihood.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvserve/error.h"

namespace kvserve {

// Means over the rows of one prompt.
struct DistributionScore {
  double kl = 0.0;              // nats per token, sum over v of p_ref(v) log(p_ref(v) / p(v)); >= 0
  double top1_agreement = 0.0;  // share of rows whose most likely token is the reference's
  double reference_nll = 0.0;   // nats per token of the text's own tokens, over rows with a target
  double nll = 0.0;
};

// Holds the reference logits of one prompt, [row, vocabulary], and compares others with them.
class ReferenceDistributions {
 public:
  // `targets[i]` is the text's token after row i; there may be fewer targets than rows (the text
  // ends). kInvalidArgument when sizes do not fit or a target is outside the vocabulary; kBadInput
  // for logits that are not finite.
  [[nodiscard]] static Result<ReferenceDistributions> Create(std::vector<float> logits,
                                                             std::uint32_t vocabulary,
                                                             std::vector<std::int32_t> targets);

  // Same shape; equal logits score exactly 0, 1 and equal likelihoods. O(rows * vocabulary).
  [[nodiscard]] Result<DistributionScore> Compare(std::span<const float> logits) const;

 private:
  ReferenceDistributions() = default;

  std::vector<float> logits_;
  std::vector<std::int32_t> targets_;
  std::vector<double> log_sums_;  // [row], log of the sum of exp(logit)
  std::uint32_t vocabulary_ = 0;
};

}  // namespace kvserve
