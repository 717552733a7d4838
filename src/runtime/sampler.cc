#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>

namespace kvserve {
namespace {

Token Greedy(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best] || std::isnan(logits[best])) best = i;
  }
  return static_cast<Token>(best);
}

}  // namespace

double Sampler::NextUniform() {
  return static_cast<double>(random_.Next() >> 11) * 0x1p-53;
}

Token Sampler::Pick(std::span<const float> logits) {
  if (options_.temperature <= 0.0F) return Greedy(logits);
  const float highest = logits[static_cast<std::size_t>(Greedy(logits))];
  candidates_.clear();
  double total = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float weight = std::exp((logits[i] - highest) / options_.temperature);
    if (!(weight > 0.0F)) continue;
    candidates_.emplace_back(weight, static_cast<Token>(i));
    total += weight;
  }
  if (candidates_.empty()) return Greedy(logits);
  // The order is part of the result: by weight, then by id.
  std::sort(candidates_.begin(), candidates_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  double kept = 0.0;
  std::size_t count = 0;
  while (count < candidates_.size() && (count == 0 || kept < options_.top_p * total)) {
    kept += candidates_[count++].first;
  }
  double point = NextUniform() * kept;
  for (std::size_t i = 0; i < count; ++i) {
    point -= candidates_[i].first;
    if (point < 0.0) return candidates_[i].second;
  }
  return candidates_[count - 1].second;
}

}  // namespace kvserve
