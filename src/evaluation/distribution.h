// Next-token distributions compared with a reference: KL divergence, top-1 agreement, likelihood.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/byte_io.h"
#include "kvserve/error.h"

namespace kvserve {

// Sums over rows (places of a text where a model was asked for the next token).
struct DistributionSum {
  std::size_t rows = 0;
  double kl = 0.0;              // nats, sum over v of p_ref(v) log(p_ref(v) / p(v)); >= 0
  double same_top = 0.0;        // rows whose most likely token is the reference's
  std::size_t targets = 0;      // rows with a target, the text's own token,
  double reference_nll = 0.0;   // nats of those by the reference
  double nll = 0.0;             // and by the distribution compared
  std::size_t top_targets = 0;  // targets that are the most likely token

  DistributionSum& operator+=(const DistributionSum& other);
};

// Holds the reference's distributions of one prompt, row by row. Of each row it keeps the most
// likely tokens up to all but kTailMass of the probability, which is a tenth of them and leaves an
// error of at most kTailMass times the largest change of a log-probability.
class ReferenceDistributions {
 public:
  static constexpr double kTailMass = 1e-6;
  static constexpr std::int32_t kNoTarget = -1;

  explicit ReferenceDistributions(std::uint32_t vocabulary = 0) : vocabulary_(vocabulary) {}

  // Adds logits [row, vocabulary]; `targets` has one token, or kNoTarget, per row. kInvalidArgument
  // when sizes do not fit or a target is outside the vocabulary, kBadInput for logits that are not
  // finite; nothing was added then.
  [[nodiscard]] Status Append(std::span<const float> logits, std::span<const std::int32_t> targets);

  // Adds logits [row, vocabulary] of rows first_row, ... compared with the reference's. Equal
  // logits add exactly 0 to kl and equal likelihoods. O(rows * vocabulary). kInvalidArgument for
  // rows that are not there, kBadInput for logits that are not finite.
  [[nodiscard]] Status Compare(std::size_t first_row, std::span<const float> logits,
                               DistributionSum& sum) const;

  [[nodiscard]] std::size_t rows() const { return rows_.size(); }
  [[nodiscard]] std::uint64_t bytes() const {  // of memory, about
    return rows_.size() * sizeof(Row) + ids_.size() * (sizeof(std::uint32_t) + sizeof(float));
  }
  // Sums of the reference compared with itself.
  [[nodiscard]] DistributionSum Own() const;

  void Write(ByteWriter& out) const;
  // kCorruptData unless Write could have written it for this vocabulary.
  [[nodiscard]] static Result<ReferenceDistributions> Read(ByteReader& in,
                                                           std::uint32_t vocabulary);

 private:
  struct Row {
    double log_sum = 0.0;  // log of the sum of exp(logit)
    std::uint32_t top = 0;
    std::int32_t target = kNoTarget;
    float target_logit = 0.0F;
    std::uint64_t end = 0;  // of its entries in ids_ and logits_
  };
  void KeepRow(std::span<const float> logits, double log_sum, std::int32_t target);
  [[nodiscard]] double Divergence(std::size_t row, std::span<const float> other,
                                  double other_sum) const;
  [[nodiscard]] Status CheckRow(const Row& row, std::uint64_t begin) const;

  std::uint32_t vocabulary_;
  std::vector<Row> rows_;
  std::vector<std::uint32_t> ids_;  // ascending within a row
  std::vector<float> logits_;
};

}  // namespace kvserve
