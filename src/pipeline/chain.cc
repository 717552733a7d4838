#include "pipeline/chain.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/try.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"

namespace kvserve {
namespace {

struct PlannedStage {
  const StageEntry* entry = nullptr;
  Settings settings;
};

std::string NameOf(const PlannedStage& planned) {
  return "'" + std::string(planned.entry->info->name) + "'";
}

ErrorCode FaultOf(ProfileOrigin origin) {
  return origin == ProfileOrigin::kCaller ? ErrorCode::kInvalidArgument : ErrorCode::kCorruptData;
}

// Old bytes are read, new ones are written in the newest version only.
Status CheckVersion(const StageSpec& spec, const StageInfo& info, ProfileOrigin origin) {
  const bool reads_older = origin == ProfileOrigin::kFrame && info.oldest_version > 0;
  const std::uint8_t oldest = reads_older ? info.oldest_version : info.version;
  if (spec.version >= oldest && spec.version <= info.version) return {};
  const std::string range = oldest < info.version ? "versions " + std::to_string(oldest) + " to " +
                                                        std::to_string(info.version)
                                                  : "version " + std::to_string(info.version);
  return MakeError(ErrorCode::kUnsupported, "stage " + std::string(info.name) + " version " +
                                                std::to_string(spec.version) +
                                                " is not supported; this build has " + range);
}

Result<PlannedStage> PlanStage(const StageSpec& spec, StageTable table, Device device,
                               ProfileOrigin origin) {
  const ErrorCode fault = FaultOf(origin);
  const StageEntry* entry = FindStage(table, spec.id);
  if (entry == nullptr) {
    return MakeError(
        ErrorCode::kUnsupported,
        "stage " + StageIdText(spec.id) + " is not in this build; it has " + StageNames(table));
  }
  const StageInfo& info = *entry->info;
  KVSERVE_TRY(CheckVersion(spec, info, origin));
  if (device == Device::kHost ? !info.host : !info.cuda) {
    return MakeError(ErrorCode::kUnsupported, "stage " + std::string(info.name) +
                                                  " does not run on " +
                                                  (device == Device::kHost ? "the host" : "CUDA"));
  }
  KVSERVE_ASSIGN(Settings settings, CheckedSettings(info, spec.version, spec.parameters, fault));
  return PlannedStage{entry, std::move(settings)};
}

// Kinds ascend, and there are exactly one quantizer and one codec, at the end.
Status CheckOrder(const std::vector<PlannedStage>& plan, ErrorCode fault) {
  StageKind last = StageKind::kSelector;
  for (const PlannedStage& planned : plan) {
    const StageInfo& info = *planned.entry->info;
    if (auto text = OrderFault(last, info); !text.empty()) return MakeError(fault, std::move(text));
    last = info.kind;
  }
  const std::size_t count = plan.size();
  if (count < 2 || plan[count - 2].entry->info->kind != StageKind::kQuantizer ||
      last != StageKind::kCodec) {
    return MakeError(fault, "a chain needs one quantizer and one codec");
  }
  return {};
}

Status CheckDomain(const std::vector<PlannedStage>& plan, ErrorCode fault) {
  const PlannedStage& quantizer = plan[plan.size() - 2];
  if (quantizer.entry->info->domain != QuantizerDomain::kNative) return {};
  for (const PlannedStage& planned : plan) {
    if (planned.entry->info->kind == StageKind::kTransform) {
      return MakeError(
          fault, "quantizer " + NameOf(quantizer) + " keeps the cache's own bits, so transform " +
                     NameOf(planned) +
                     " cannot come before it; drop the transform or use a quantizer of "
                     "real values");
    }
  }
  return {};
}

// Weights that nothing honours would be a profile which says more than it does.
Status CheckWeighed(const std::vector<ChainStage<Selector>>& selectors,
                    const ChainStage<Quantizer>& quantizer, ErrorCode fault) {
  if (selectors.empty() || quantizer.stage->honours_weights()) return {};
  return MakeError(fault, "selector '" + std::string(selectors.front().info->name) +
                              "' weighs tokens, and quantizer '" +
                              std::string(quantizer.info->name) +
                              "' codes all tokens alike; use quantizer 'mixed'");
}

// Axes of keys before RoPE mean nothing for rotated keys, and nothing in the values would tell.
Status CheckRotation(const std::vector<ChainStage<Transform>>& transforms, ErrorCode fault) {
  bool unrotated = false;
  for (const auto& transform : transforms) {
    if (transform.stage->needs_unrotated_keys() && !unrotated) {
      return MakeError(fault, "transform '" + std::string(transform.info->name) +
                                  "' takes keys before RoPE; put 'unrope' before it, or set "
                                  "k_on=0");
    }
    unrotated = unrotated || transform.stage->unrotates_keys();
  }
  return {};
}

// Weights for an artefact's components say nothing of other values. Frames that were written
// without this rule decode.
Status CheckComponents(const std::vector<ChainStage<Transform>>& transforms, ProfileOrigin origin) {
  bool given = origin == ProfileOrigin::kFrame;
  for (const auto& transform : transforms) {
    if (transform.stage->needs_components() && !given) {
      return MakeError(FaultOf(origin), "transform '" + std::string(transform.info->name) +
                                            "' takes calibrated components; put 'whiten' before "
                                            "it");
    }
    given = given || transform.stage->gives_components();
  }
  return {};
}

template <typename Stage>
using Factory = Result<std::unique_ptr<Stage>> (*)(const Settings&);

template <typename Stage>
Status Make(const PlannedStage& planned, Factory<Stage> factory, ErrorCode fault,
            ChainStage<Stage>& out, bool& needs_artefact) {
  if (factory == nullptr) {
    return MakeError(ErrorCode::kInternal, "stage " + NameOf(planned) + " has no factory");
  }
  auto stage = factory(planned.settings);
  if (!stage) {
    const ErrorCode code = stage.error().code;
    return MakeError(
        code == ErrorCode::kInvalidArgument ? fault : code,
        "stage " + std::string(planned.entry->info->name) + ": " + stage.error().message);
  }
  out.info = planned.entry->info;
  out.stage = std::move(*stage);
  needs_artefact = needs_artefact || out.stage->needs_artefact();
  return {};
}

}  // namespace

Status Chain::CheckDType(DType dtype, ProfileOrigin origin) const {
  KVSERVE_TRY(CheckDTypeSupported(dtype));
  if (native() || DTypeHoldsNumbers(dtype)) return {};
  return MakeError(FaultOf(origin),
                   "quantizer '" + std::string(quantizer_.info->name) +
                       "' computes with values, and " + std::string(DTypeName(dtype)) +
                       " is opaque bytes; 'none' and 'lossless' keep them bit for bit");
}

const StageInfo* Chain::query_selector() const {
  for (const auto& selector : selectors_) {
    if (selector.stage->needs_queries()) return selector.info;
  }
  return nullptr;
}

const StageInfo* Chain::dropping_selector() const {
  for (const auto& selector : selectors_) {
    if (selector.stage->may_drop()) return selector.info;
  }
  return nullptr;
}

bool Chain::needs_feedback() const {
  return std::any_of(
      transforms_.begin(), transforms_.end(),
      [](const ChainStage<Transform>& transform) { return transform.stage->needs_feedback(); });
}

Result<Chain> Chain::Create(const std::vector<StageSpec>& stages, StageTable table, DType dtype,
                            Device device, ProfileOrigin origin) {
  const ErrorCode fault = FaultOf(origin);
  KVSERVE_TRY(CheckDTypeSupported(dtype));
  std::vector<PlannedStage> plan;
  for (const StageSpec& spec : stages) {
    KVSERVE_ASSIGN(PlannedStage planned, PlanStage(spec, table, device, origin));
    plan.push_back(std::move(planned));
  }
  KVSERVE_TRY(CheckOrder(plan, fault));
  KVSERVE_TRY(CheckDomain(plan, fault));
  Chain chain;
  for (const PlannedStage& planned : plan) {
    const StageEntry& entry = *planned.entry;
    chain.lossless_ = chain.lossless_ && entry.info->lossless;
    switch (entry.info->kind) {
      case StageKind::kSelector:
        KVSERVE_TRY(Make(planned, entry.make_selector, fault, chain.selectors_.emplace_back(),
                         chain.needs_artefact_));
        break;
      case StageKind::kTransform:
        KVSERVE_TRY(Make(planned, entry.make_transform, fault, chain.transforms_.emplace_back(),
                         chain.needs_artefact_));
        break;
      case StageKind::kQuantizer:
        KVSERVE_TRY(
            Make(planned, entry.make_quantizer, fault, chain.quantizer_, chain.needs_artefact_));
        break;
      case StageKind::kCodec:
        KVSERVE_TRY(Make(planned, entry.make_codec, fault, chain.codec_, chain.needs_artefact_));
        break;
    }
  }
  KVSERVE_TRY(CheckRotation(chain.transforms_, fault));
  KVSERVE_TRY(CheckComponents(chain.transforms_, origin));
  KVSERVE_TRY(CheckWeighed(chain.selectors_, chain.quantizer_, fault));
  KVSERVE_TRY(chain.CheckDType(dtype, origin));
  return chain;
}

}  // namespace kvserve
