// kvserve stages: the strategy space of this build, from the stage table.
#include <memory>

#include "command.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"
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
    return {};
  }
  Json document = {{"stages", Json::array()}};
  for (const StageEntry& entry : stages) document["stages"].push_back(StageJson(*entry.info));
  PrintJson(invocation, std::move(document));
  return {};
}

}  // namespace

void AddStages(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("stages", "List the stages that profiles are made of");
  AddJsonFlag(command, invocation);
  command.footer(
      "Examples:\n"
      "  kvserve stages\n"
      "  kvserve stages --json");
  command.callback(
      [&invocation] { invocation.run = [&invocation] { return RunStages(invocation); }; });
}

}  // namespace kvserve::tool
