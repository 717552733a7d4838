#include "evaluation/distribution.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace kvserve {
namespace {

std::size_t TopIndex(std::span<const float> row) {
  return static_cast<std::size_t>(std::ranges::max_element(row) - row.begin());
}

// Shifted by the largest logit so that nothing overflows.
double LogSum(std::span<const float> row) {
  const double top = *std::ranges::max_element(row);
  double sum = 0;
  for (const float logit : row) sum += std::exp(logit - top);
  return top + std::log(sum);
}

double RowDivergence(std::span<const float> reference, double reference_sum,
                     std::span<const float> other, double other_sum) {
  double divergence = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - reference_sum;
    divergence += std::exp(log_p) * (log_p - (other[i] - other_sum));
  }
  return std::max(divergence, 0.0);  // rounding may leave -1e-17
}

}  // namespace

Result<ReferenceDistributions> ReferenceDistributions::Create(std::vector<float> logits,
                                                              std::uint32_t vocabulary,
                                                              std::vector<std::int32_t> targets) {
  if (vocabulary == 0 || logits.empty() || logits.size() % vocabulary != 0 ||
      targets.size() > logits.size() / vocabulary) {
    return MakeError(ErrorCode::kInvalidArgument, std::to_string(logits.size()) + " logits and " +
                                                      std::to_string(targets.size()) +
                                                      " targets do not fit a vocabulary of " +
                                                      std::to_string(vocabulary));
  }
  for (const std::int32_t target : targets) {
    if (target < 0 || static_cast<std::uint32_t>(target) >= vocabulary) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "target " + std::to_string(target) + " is outside the vocabulary");
    }
  }
  ReferenceDistributions reference;
  reference.logits_ = std::move(logits);
  reference.targets_ = std::move(targets);
  reference.vocabulary_ = vocabulary;
  for (std::size_t at = 0; at < reference.logits_.size(); at += vocabulary) {
    const double log_sum = LogSum(std::span(reference.logits_).subspan(at, vocabulary));
    if (!std::isfinite(log_sum)) {
      return MakeError(ErrorCode::kBadInput, "reference logits are not finite");
    }
    reference.log_sums_.push_back(log_sum);
  }
  return reference;
}

Result<DistributionScore> ReferenceDistributions::Compare(std::span<const float> logits) const {
  if (logits.size() != logits_.size()) {
    return MakeError(ErrorCode::kInvalidArgument, std::to_string(logits.size()) + " logits, " +
                                                      std::to_string(logits_.size()) +
                                                      " reference logits");
  }
  DistributionScore score;
  const std::size_t rows = log_sums_.size();
  for (std::size_t row = 0; row < rows; ++row) {
    const auto mine = std::span(logits_).subspan(row * vocabulary_, vocabulary_);
    const auto other = logits.subspan(row * vocabulary_, vocabulary_);
    const double other_sum = LogSum(other);
    if (!std::isfinite(other_sum)) {
      return MakeError(ErrorCode::kBadInput,
                       "logits of scored token " + std::to_string(row) + " are not finite");
    }
    score.kl += RowDivergence(mine, log_sums_[row], other, other_sum);
    score.top1_agreement += TopIndex(mine) == TopIndex(other) ? 1 : 0;
    if (row >= targets_.size()) continue;
    const auto target = static_cast<std::size_t>(targets_[row]);
    score.reference_nll += log_sums_[row] - mine[target];
    score.nll += other_sum - other[target];
  }
  score.kl /= static_cast<double>(rows);
  score.top1_agreement /= static_cast<double>(rows);
  const auto targets = static_cast<double>(std::max<std::size_t>(targets_.size(), 1));
  score.reference_nll /= targets;
  score.nll /= targets;
  return score;
}

}  // namespace kvserve
