#include "stages/profile_facts.h"

#include <algorithm>

#include "base/try.h"
#include "kvserve/codec.h"
#include "pipeline/stage_lookup.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

template <typename Stage>
StageFacts FactsOf(const ChainStage<Stage>& stage) {
  return {stage.info->id, stage.stage->scale_source(PlaneKind::kKey),
          stage.stage->scale_source(PlaneKind::kValue)};
}

}  // namespace

Result<ProfileFacts> FactsOf(const std::vector<StageSpec>& stages, DType dtype,
                             ProfileOrigin origin) {
  KVSERVE_ASSIGN(const Chain chain,
                 Chain::Create(stages, BuiltinStages(), dtype, Device::kHost, origin));
  ProfileFacts facts;
  facts.lossless = chain.lossless();
  facts.needs_artefact = chain.needs_artefact();
  if (chain.query_selector() != nullptr) facts.needs_queries = chain.query_selector()->name;
  if (chain.dropping_selector() != nullptr) facts.may_drop = chain.dropping_selector()->name;
  for (const auto& transform : chain.transforms()) facts.stages.push_back(FactsOf(transform));
  facts.stages.push_back(FactsOf(chain.quantizer()));
  facts.stages.push_back(FactsOf(chain.codec()));
  return facts;
}

Status CheckKeepsTokens(const ProfileFacts& facts) {
  if (facts.may_drop.empty()) return {};
  return MakeError(ErrorCode::kUnsupported,
                   "selector '" + std::string(facts.may_drop) +
                       "' drops tokens, which the receiving engine's cache cannot leave out; with "
                       "outside above 0 it sends them at lower precision instead");
}

Status CheckNeedsNoQueries(const ProfileFacts& facts) {
  if (facts.needs_queries.empty()) return {};
  return MakeError(ErrorCode::kUnsupported, "selector '" + std::string(facts.needs_queries) +
                                                "' ranks tokens by the prompt's queries, which a "
                                                "sender of KV does not have");
}

bool IsLossless(const std::vector<StageSpec>& stages) {
  return std::ranges::all_of(stages, [](const StageSpec& spec) {
    const StageEntry* const entry = FindStage(BuiltinStages(), spec.id);
    return entry != nullptr && entry->info->lossless;
  });
}

std::string ScaleSourcesText(const ProfileFacts& facts) {
  std::string text;
  for (const StageFacts& stage : facts.stages) {
    text +=
        (text.empty() ? "" : " ") + std::string(FindStage(BuiltinStages(), stage.id)->info->name);
    text += ":" + std::string(ScaleSourceName(stage.k_scales));
    if (stage.v_scales != stage.k_scales)
      text += "/" + std::string(ScaleSourceName(stage.v_scales));
  }
  return text;
}

std::string_view QualityClassName(bool lossless) {
  return lossless ? "lossless" : "lossy";
}

std::string_view QualityClassOf(std::string_view profile) {
  const auto parsed = ParseProfile(profile);
  if (!parsed) return "unknown";
  return QualityClassName(IsLossless(parsed->stages));
}

std::string_view ScaleSourceName(ScaleSource source) {
  switch (source) {
    case ScaleSource::kUnit: return "unit";
    case ScaleSource::kFrame: return "frame";
    case ScaleSource::kProfile: return "profile";
    case ScaleSource::kCalibrated: return "calibrated";
  }
  return "unknown";
}

}  // namespace kvserve
