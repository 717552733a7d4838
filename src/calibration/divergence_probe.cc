#include "calibration/divergence_probe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/try.h"
#include "calibration/opened_sequence.h"

namespace kvserve {
Result<DivergenceProbe> DivergenceProbe::Create(Engine& engine, std::span<const Token> context,
                                                std::span<const Token> scored,
                                                std::uint32_t prefill_tokens) {
  DivergenceProbe probe(engine, scored);
  KVSERVE_TRY(probe.Fill(context, prefill_tokens));
  KVSERVE_TRY(probe.KeepReference());
  return probe;
}

Status DivergenceProbe::Fill(std::span<const Token> context, std::uint32_t prefill_tokens) {
  KVSERVE_ASSIGN(const SequenceId id, engine_.OpenSequence());
  const OpenedSequence sequence(engine_, id);
  const auto total = static_cast<std::uint32_t>(context.size());
  for (std::uint32_t begin = 0; begin < total; begin += prefill_tokens) {
    const std::uint32_t count = std::min(prefill_tokens, total - begin);
    KVSERVE_TRY(engine_.Prefill(id, context.subspan(begin, count), begin));
  }
  return engine_.Capture(id, {0, total}, total, kv_);
}

Result<std::vector<float>> DivergenceProbe::Score() {
  KVSERVE_ASSIGN(const SequenceId id, engine_.OpenSequence());
  const OpenedSequence sequence(engine_, id);
  KVSERVE_TRY(engine_.Inject(id, std::as_const(kv_).view()));
  return engine_.Score(id, scored_, kv_.tokens().end);
}

Status DivergenceProbe::KeepReference() {
  constexpr double kNegligible = -20;
  KVSERVE_ASSIGN(const std::vector<float> logits, Score());
  const std::size_t vocabulary = logits.size() / scored_.size();
  for (std::size_t begin = 0; begin < logits.size(); begin += vocabulary) {
    const auto row = std::span(logits).subspan(begin, vocabulary);
    const float largest = std::ranges::max(row);
    double sum = 0;
    for (const float logit : row) sum += std::exp(logit - largest);
    const double log_sum = largest + std::log(sum);
    if (!std::isfinite(log_sum)) {
      return MakeError(ErrorCode::kBadInput, "the model's logits are not finite");
    }
    auto& kept = reference_.emplace_back();
    for (std::size_t i = 0; i < vocabulary; ++i) {
      const double log_likelihood = row[i] - log_sum;
      if (log_likelihood < kNegligible) continue;
      kept.push_back({begin + i, row[i], static_cast<float>(std::exp(log_likelihood))});
    }
  }
  return {};
}

// With d the changes of the logits: log of the mean of e^d, less the mean of d, under the
// reference.
Result<double> DivergenceProbe::Divergence() {
  KVSERVE_ASSIGN(const std::vector<float> logits, Score());
  double sum = 0;
  for (const auto& row : reference_) {
    double growth = 0;
    double mean = 0;
    for (const Likelihood& token : row) {
      const double change = double{logits[token.at]} - token.logit;
      growth += token.probability * std::expm1(change);
      mean += token.probability * change;
    }
    sum += std::log1p(growth) - mean;
  }
  if (!std::isfinite(sum)) {
    return MakeError(ErrorCode::kBadInput, "the model's logits are not finite");
  }
  return sum / static_cast<double>(reference_.size());
}

}  // namespace kvserve
