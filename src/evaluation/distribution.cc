#include "evaluation/distribution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/try.h"

namespace kvserve {
namespace {

std::uint32_t TopIndex(std::span<const float> row) {
  return static_cast<std::uint32_t>(std::ranges::max_element(row) - row.begin());
}

// Shifted by the largest logit so that nothing overflows.
double LogSum(std::span<const float> row, float top) {
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum);
}

// The largest logit such that all below it together have at most `mass` of the probability, to a
// half nat: one histogram instead of sorting the vocabulary.
float TailLimit(std::span<const float> logits, double log_sum, double mass) {
  constexpr std::size_t kBins = 128;
  constexpr double kBinsPerNat = 2.0;
  std::array<double, kBins> masses{};  // [half nats below log_sum]; the last holds all the rest
  for (const float logit : logits) {
    const double below = log_sum - logit;
    const auto bin = static_cast<std::size_t>(
        std::clamp(below * kBinsPerNat, 0.0, static_cast<double>(kBins - 1)));
    masses[bin] += std::exp(-below);
  }
  double tail = 0;
  std::size_t bin = kBins;
  while (bin > 0 && tail + masses[bin - 1] <= mass) tail += masses[--bin];
  return static_cast<float>(log_sum - static_cast<double>(bin) / kBinsPerNat);
}

}  // namespace

DistributionSum& DistributionSum::operator+=(const DistributionSum& other) {
  rows += other.rows;
  kl += other.kl;
  same_top += other.same_top;
  targets += other.targets;
  reference_nll += other.reference_nll;
  nll += other.nll;
  top_targets += other.top_targets;
  return *this;
}

Status ReferenceDistributions::Append(std::span<const float> logits,
                                      std::span<const std::int32_t> targets) {
  if (vocabulary_ == 0 || targets.empty() || logits.size() != targets.size() * vocabulary_) {
    return MakeError(ErrorCode::kInvalidArgument, std::to_string(logits.size()) + " logits and " +
                                                      std::to_string(targets.size()) +
                                                      " targets do not fit a vocabulary of " +
                                                      std::to_string(vocabulary_));
  }
  for (const std::int32_t target : targets) {
    if (target == kNoTarget) continue;
    if (target < 0 || static_cast<std::uint32_t>(target) >= vocabulary_) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "target " + std::to_string(target) + " is outside the vocabulary");
    }
  }
  std::vector<double> log_sums;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const auto mine = logits.subspan(row * vocabulary_, vocabulary_);
    log_sums.push_back(LogSum(mine, mine[TopIndex(mine)]));
    if (std::isfinite(log_sums.back())) continue;
    return MakeError(ErrorCode::kBadInput, "reference logits are not finite");
  }
  for (std::size_t row = 0; row < targets.size(); ++row) {
    KeepRow(logits.subspan(row * vocabulary_, vocabulary_), log_sums[row], targets[row]);
  }
  return {};
}

void ReferenceDistributions::KeepRow(std::span<const float> logits, double log_sum,
                                     std::int32_t target) {
  const float limit = TailLimit(logits, log_sum, kTailMass);
  for (std::uint32_t id = 0; id < logits.size(); ++id) {
    if (logits[id] < limit) continue;
    ids_.push_back(id);
    logits_.push_back(logits[id]);
  }
  const float target_logit = target == kNoTarget ? 0.0F : logits[static_cast<std::size_t>(target)];
  rows_.push_back({log_sum, TopIndex(logits), target, target_logit, ids_.size()});
}

double ReferenceDistributions::Divergence(std::size_t row, std::span<const float> other,
                                          double other_sum) const {
  const double own_sum = rows_[row].log_sum;
  double divergence = 0;
  for (std::size_t i = row == 0 ? 0 : rows_[row - 1].end; i < rows_[row].end; ++i) {
    const double log_p = logits_[i] - own_sum;
    divergence += std::exp(log_p) * (log_p - (other[ids_[i]] - other_sum));
  }
  return std::max(divergence, 0.0);  // rounding and the tail may leave -1e-9
}

Status ReferenceDistributions::Compare(std::size_t first_row, std::span<const float> logits,
                                       DistributionSum& sum) const {
  const std::size_t count = vocabulary_ == 0 ? 0 : logits.size() / vocabulary_;
  if (count * vocabulary_ != logits.size() || first_row > rows() || count > rows() - first_row) {
    return MakeError(ErrorCode::kInvalidArgument,
                     std::to_string(logits.size()) + " logits are no rows of the reference's " +
                         std::to_string(rows()) + " from row " + std::to_string(first_row));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto other = logits.subspan(i * vocabulary_, vocabulary_);
    const std::uint32_t top = TopIndex(other);
    const double other_sum = LogSum(other, other[top]);
    if (!std::isfinite(other_sum)) {
      return MakeError(ErrorCode::kBadInput, "logits of scored token " +
                                                 std::to_string(first_row + i) + " are not finite");
    }
    const Row& row = rows_[first_row + i];
    ++sum.rows;
    sum.kl += Divergence(first_row + i, other, other_sum);
    sum.same_top += row.top == top ? 1 : 0;
    if (row.target == kNoTarget) continue;
    ++sum.targets;
    sum.reference_nll += row.log_sum - row.target_logit;
    sum.nll += other_sum - other[static_cast<std::size_t>(row.target)];
    sum.top_targets += static_cast<std::uint32_t>(row.target) == top ? 1 : 0;
  }
  return {};
}

DistributionSum ReferenceDistributions::Own() const {
  DistributionSum sum;
  sum.rows = rows();
  sum.same_top = static_cast<double>(rows());
  for (const Row& row : rows_) {
    if (row.target == kNoTarget) continue;
    ++sum.targets;
    sum.reference_nll += row.log_sum - row.target_logit;
    sum.top_targets += static_cast<std::uint32_t>(row.target) == row.top ? 1 : 0;
  }
  sum.nll = sum.reference_nll;
  return sum;
}

void ReferenceDistributions::Write(ByteWriter& out) const {
  out.PutVarint(rows_.size());
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    const std::uint64_t begin = r == 0 ? 0 : rows_[r - 1].end;
    out.Put(row.log_sum);
    out.Put(row.top);
    out.Put(row.target);
    out.Put(row.target_logit);
    out.PutVarint(row.end - begin);
    for (std::uint64_t i = begin; i < row.end; ++i) out.Put(ids_[i]);
    for (std::uint64_t i = begin; i < row.end; ++i) out.Put(logits_[i]);
  }
}

Status ReferenceDistributions::CheckRow(const Row& row, std::uint64_t begin) const {
  const auto corrupt = [](const char* what) {
    return MakeError(ErrorCode::kCorruptData, std::string("reference distributions: ") + what);
  };
  if (!std::isfinite(row.log_sum) || row.top >= vocabulary_) return corrupt("a row is not valid");
  if (row.target != kNoTarget &&
      (row.target < 0 || static_cast<std::uint32_t>(row.target) >= vocabulary_)) {
    return corrupt("a target is outside the vocabulary");
  }
  for (std::uint64_t i = begin; i < row.end; ++i) {
    if (ids_[i] >= vocabulary_ || (i > begin && ids_[i] <= ids_[i - 1])) {
      return corrupt("tokens are not ascending or outside the vocabulary");
    }
    if (!std::isfinite(logits_[i])) return corrupt("a logit is not finite");
  }
  return {};
}

Result<ReferenceDistributions> ReferenceDistributions::Read(ByteReader& in,
                                                            std::uint32_t vocabulary) {
  ReferenceDistributions read(vocabulary);
  KVSERVE_ASSIGN(const std::uint64_t rows, in.GetVarint());
  for (std::uint64_t r = 0; r < rows; ++r) {
    Row row;
    KVSERVE_ASSIGN(row.log_sum, in.Get<double>());
    KVSERVE_ASSIGN(row.top, in.Get<std::uint32_t>());
    KVSERVE_ASSIGN(row.target, in.Get<std::int32_t>());
    KVSERVE_ASSIGN(row.target_logit, in.Get<float>());
    KVSERVE_ASSIGN(const std::uint64_t count, in.GetVarint());
    if (count > vocabulary) {
      return MakeError(ErrorCode::kCorruptData, "reference distributions: too many tokens");
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      KVSERVE_ASSIGN(const auto id, in.Get<std::uint32_t>());
      read.ids_.push_back(id);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      KVSERVE_ASSIGN(const auto logit, in.Get<float>());
      read.logits_.push_back(logit);
    }
    row.end = read.ids_.size();
    KVSERVE_TRY(read.CheckRow(row, row.end - count));
    read.rows_.push_back(row);
  }
  return read;
}

}  // namespace kvserve
