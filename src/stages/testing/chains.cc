#include "stages/testing/chains.h"

#include <algorithm>

#include "pipeline/chain.h"
#include "pipeline/profile_text.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"
#include "stages/registry.h"

namespace kvserve::testing {
namespace {

std::vector<const StageInfo*> OfKind(StageKind kind) {
  std::vector<const StageInfo*> infos;
  for (const StageEntry& entry : BuiltinStages()) {
    if (entry.info->kind == kind) infos.push_back(entry.info);
  }
  return infos;
}

const StageInfo* RealQuantizer() {
  for (const StageInfo* info : OfKind(StageKind::kQuantizer)) {
    if (info->domain == QuantizerDomain::kReal) return info;
  }
  return nullptr;
}

std::string WeighedQuantizer() {
  for (const StageEntry& entry : BuiltinStages()) {
    if (entry.make_quantizer == nullptr) continue;
    const auto made = entry.make_quantizer(Settings(*entry.info, DefaultValues(*entry.info)));
    if (made && (*made)->honours_weights()) return std::string(entry.info->name);
  }
  return "";
}

bool CanBe(const std::string& text) {
  const auto profile = ParseProfileText(text, BuiltinStages());
  return profile && Chain::Create(profile->stages, BuiltinStages(), DType::kFloat16, Device::kHost,
                                  ProfileOrigin::kCaller);
}

// A chain as it is, or behind the transforms that it needs before it, at most `most`.
std::string Usable(const std::string& text, int most = 2) {
  if (most == 0 || CanBe(text)) return text;
  for (int before = 1; before <= most; ++before) {
    for (const StageInfo* transform : OfKind(StageKind::kTransform)) {
      std::string longer = Usable(std::string(transform->name) + "|" + text, before - 1);
      if (CanBe(longer)) return longer;
    }
  }
  return text;
}

// The stage in the shortest chain that uses it.
std::string InChain(const StageInfo& info, const std::string& stage) {
  if (info.kind == StageKind::kSelector) return stage + "|" + WeighedQuantizer();
  const std::string real = RealQuantizer() == nullptr ? "" : std::string(RealQuantizer()->name);
  if (info.kind == StageKind::kQuantizer) return stage + "|none";
  if (info.kind != StageKind::kCodec) return Usable(stage + "|" + real);
  return real + "|" + stage;
}

std::vector<double> Extremes(const ParameterInfo& parameter) {
  if (parameter.type == ParameterType::kBoolean) return {0.0, 1.0};
  if (parameter.type != ParameterType::kChoice) return {parameter.low, parameter.high};
  std::vector<double> values;
  for (std::size_t i = 0; i < parameter.choices.size(); ++i) {
    values.push_back(static_cast<double>(i));
  }
  return values;
}

}  // namespace

std::vector<std::string> AllChains() {
  std::vector<std::string> chains;
  const auto codecs = OfKind(StageKind::kCodec);
  for (const StageInfo* quantizer : OfKind(StageKind::kQuantizer)) {
    const std::string name(quantizer->name);
    for (const StageInfo* codec : codecs) chains.push_back(name + "|" + std::string(codec->name));
    if (quantizer->domain == QuantizerDomain::kNative) continue;
    for (const StageInfo* transform : OfKind(StageKind::kTransform)) {
      const StageInfo* codec = codecs[chains.size() % codecs.size()];
      chains.push_back(
          Usable(std::string(transform->name) + "|" + name + "|" + std::string(codec->name)));
    }
  }
  return chains;
}

std::vector<std::string> AllSettings() {
  std::vector<std::string> chains;
  for (const StageEntry& entry : BuiltinStages()) {
    const StageInfo& info = *entry.info;
    for (const ParameterInfo& parameter : info.parameters) {
      const std::string name(parameter.name);
      std::vector<std::string> options = {name};
      if (parameter.per_plane) options = {name, "k_" + name, "v_" + name};
      for (const std::string& option : options) {
        for (const double value : Extremes(parameter)) {
          chains.push_back(InChain(
              info, std::string(info.name) + ":" + option + "=" + ValueText(parameter, value)));
        }
      }
    }
  }
  return chains;
}

bool IsLossless(const Profile& profile) {
  return std::all_of(profile.stages.begin(), profile.stages.end(), [](const StageSpec& spec) {
    return FindStage(BuiltinStages(), spec.id)->info->lossless;
  });
}

}  // namespace kvserve::testing
