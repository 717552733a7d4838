#include "pipeline/token_weights.h"

#include <cmath>
#include <string>

namespace kvserve {
namespace {

bool Allowed(float weight, bool may_drop) {
  return std::isfinite(weight) && (weight > 0.0F || (weight == 0.0F && may_drop));
}

}  // namespace

Status BeginWeights(const Chain& chain, const EncoderMemory* memory,
                    std::span<const OrderedPlane<const std::byte>> planes,
                    std::vector<std::vector<float>>& weights) {
  if (memory != nullptr && memory->selectors.size() != chain.selectors().size()) {
    return MakeError(ErrorCode::kInvalidArgument, "the encoder memory is of another chain");
  }
  weights.resize(chain.selectors().empty() ? 0 : planes.size());
  for (std::size_t p = 0; p < weights.size(); ++p) weights[p].assign(planes[p].tokens.size(), 1);
  return {};
}

Status CheckWeights(const Chain& chain, std::span<const OrderedPlane<const std::byte>> planes,
                    std::span<const std::vector<float>> weights) {
  const bool may_drop = chain.dropping_selector() != nullptr;
  for (std::size_t p = 0; p < weights.size(); ++p) {
    bool allowed = weights[p].size() == planes[p].tokens.size();
    for (const float weight : weights[p]) allowed = allowed && Allowed(weight, may_drop);
    if (allowed) continue;
    return MakeError(ErrorCode::kInternal, "selectors gave " +
                                               PlaneName(planes[p].layer, planes[p].kind) +
                                               " weights that they may not give");
  }
  return {};
}

}  // namespace kvserve
