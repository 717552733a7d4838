#include "calibration/divergence_probe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/try.h"
#include "calibration/opened_sequence.h"

namespace kvserve {
namespace {

Status ToLogLikelihoods(std::span<float> logits) {
  const float largest = std::ranges::max(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const auto log_sum = static_cast<float>(largest + std::log(sum));
  if (!std::isfinite(log_sum)) {
    return MakeError(ErrorCode::kBadInput, "the model's logits are not finite");
  }
  for (float& logit : logits) logit -= log_sum;
  return {};
}

}  // namespace

Result<DivergenceProbe> DivergenceProbe::Create(Engine& engine, std::span<const Token> context,
                                                std::span<const Token> scored,
                                                std::uint32_t prefill_tokens) {
  DivergenceProbe probe(engine, scored);
  KVSERVE_TRY(probe.Fill(context, prefill_tokens));
  KVSERVE_ASSIGN(probe.reference_, probe.Score());
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
  KVSERVE_ASSIGN(auto logits, engine_.Score(id, scored_, kv_.tokens().end));
  const std::size_t vocabulary = logits.size() / scored_.size();
  for (std::size_t at = 0; at < logits.size(); at += vocabulary) {
    KVSERVE_TRY(ToLogLikelihoods(std::span(logits).subspan(at, vocabulary)));
  }
  return logits;
}

Result<double> DivergenceProbe::Divergence() {
  KVSERVE_ASSIGN(const std::vector<float> changed, Score());
  double sum = 0;
  for (std::size_t i = 0; i < changed.size(); ++i) {
    constexpr float kNegligible = -25.0F;  // e^-25 of a vocabulary of 2^18 together: 4e-6
    if (reference_[i] > kNegligible) {
      sum += std::exp(reference_[i]) * (double{reference_[i]} - changed[i]);
    }
  }
  return sum / static_cast<double>(scored_.size());
}

}  // namespace kvserve
