// kvserve stages: the strategy space of this build, from the stage table, and the presets.
#include <memory>

#include "command.h"
#include "pipeline/chain.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"
#include "stages/presets.h"
#include "stages/registry.h"
#include "table.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;

const char* TypeName(ParameterType type) {
  switch (type) {
    case ParameterType::kInteger: return "integer";
    case ParameterType::kReal: return "real";
    case ParameterType::kBoolean: return "boolean";
    case ParameterType::kChoice: return "choice";
  }
  return "unknown";
}

// A value as the type says it: a number, true or false, or the choice's name.
Json ValueJson(const ParameterInfo& info, double value) {
  if (info.type == ParameterType::kReal) return value;
  if (info.type == ParameterType::kInteger) return static_cast<std::int64_t>(value);
  if (info.type == ParameterType::kBoolean) return value != 0.0;
  return ValueText(info, value);
}

Json RangeJson(const ParameterInfo& info) {
  if (info.type == ParameterType::kBoolean) return {false, true};
  if (info.type != ParameterType::kChoice) {
    return {ValueJson(info, info.low), ValueJson(info, info.high)};
  }
  Json choices = Json::array();
  for (const std::string_view choice : info.choices) choices.push_back(choice);
  return choices;
}

std::vector<const char*> Devices(const StageInfo& info) {
  std::vector<const char*> devices;
  if (info.host) devices.push_back("host");
  if (info.cuda) devices.push_back("cuda");
  return devices;
}

Json StageJson(const StageInfo& info) {
  Json parameters = Json::object();
  for (const ParameterSlot& slot : ParameterSlots(info)) {
    parameters[slot.name()] = {{"id", slot.id},
                               {"type", TypeName(slot.info->type)},
                               {"range", RangeJson(*slot.info)},
                               {"default", ValueJson(*slot.info, slot.default_value)},
                               {"unit", slot.info->unit},
                               {"help", slot.info->help}};
  }
  return {{"kind", KindName(info.kind)}, {"name", info.name},         {"id", info.id},
          {"version", info.version},     {"lossless", info.lossless}, {"devices", Devices(info)},
          {"summary", info.summary},     {"parameters", parameters}};
}

void PrintPresets() {
  Table table({"preset", "profile", "from"});
  for (const PresetDescription& preset : Presets()) {
    table.Add({std::string(preset.name), std::string(preset.profile), std::string(preset.source)});
  }
  std::printf("\n");
  table.Print();
  std::printf(
      "\nA preset is a profile by itself, and takes options of its stages:\n"
      "  published:k_levels=8\n");
}

// What an encoder must be given beside the KV, and what an engine must be able to do.
Json NeedsJson(const PresetDescription& preset) {
  Json needs = Json::array();
  const auto profile = ParsePreset(preset.name);
  if (!profile) return needs;
  const auto chain = Chain::Create(profile->stages, BuiltinStages(), DType::kFloat16, Device::kHost,
                                   ProfileOrigin::kCaller);
  if (!chain) return needs;
  if (chain->needs_artefact()) needs.push_back("calibration");
  if (chain->query_selector() != nullptr) needs.push_back("queries");
  if (chain->dropping_selector() != nullptr) needs.push_back("dropping");
  return needs;
}

Json PresetsJson() {
  Json presets = Json::array();
  for (const PresetDescription& preset : Presets()) {
    presets.push_back({{"name", preset.name},
                       {"needs", NeedsJson(preset)},
                       {"profile", preset.profile},
                       {"source", preset.source},
                       {"differs", preset.differs}});
  }
  return presets;
}

void PrintStages(StageTable stages) {
  Table table({"kind", "name", "id", "version", "lossless", "what it does"});
  Table parameters({"parameter", "takes", "default", "unit", "meaning"});
  for (const StageEntry& entry : stages) {
    const StageInfo& info = *entry.info;
    table.Add({std::string(KindName(info.kind)), std::string(info.name), StageIdText(info.id),
               std::to_string(info.version), info.lossless ? "yes" : "no",
               std::string(info.summary)});
    for (const ParameterSlot& slot : ParameterSlots(info)) {
      parameters.Add({std::string(info.name) + ":" + slot.name(), RangeText(*slot.info),
                      ValueText(*slot.info, slot.default_value), std::string(slot.info->unit),
                      std::string(slot.info->help)});
    }
  }
  table.Print();
  std::printf("\n");
  parameters.Print();
  std::printf(
      "\nA profile lists stages in the order selectors, transforms, quantizer, codec:\n"
      "  hadamard|uniform:k_levels=16,v_levels=8|rans\n");
}

Status RunStages(const Invocation& invocation) {
  const StageTable stages = BuiltinStages();
  if (!invocation.json) {
    PrintStages(stages);
    PrintPresets();
    return {};
  }
  Json document = {{"stages", Json::array()}};
  for (const StageEntry& entry : stages) document["stages"].push_back(StageJson(*entry.info));
  document["presets"] = PresetsJson();
  PrintJson(invocation, std::move(document));
  return {};
}

}  // namespace

void AddStages(CLI::App& app, Invocation& invocation) {
  CLI::App& command =
      *app.add_subcommand("stages", "List the stages that profiles are made of, and the presets");
  AddJsonFlag(command, invocation);
  command.footer(
      "Examples:\n"
      "  kvserve stages\n"
      "  kvserve stages --json");
  command.callback(
      [&invocation] { invocation.run = [&invocation] { return RunStages(invocation); }; });
}

}  // namespace kvserve::tool
