#include "pipeline/profile_options.h"

#include <algorithm>

#include "base/try.h"
#include "pipeline/profile_fault.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"

namespace kvserve {
namespace {

std::string OptionNames(const StageInfo& info) {
  std::string text;
  for (const ParameterInfo& parameter : info.parameters) {
    if (!text.empty()) text += ", ";
    if (parameter.per_plane) text += "[k_|v_]";
    text += parameter.name;
  }
  return text;
}

bool HasOption(const StageInfo& info, std::string_view name) {
  const auto slots = ParameterSlots(info);
  return std::any_of(slots.begin(), slots.end(), [&](const ParameterSlot& slot) {
    return slot.info->name == name || slot.name() == name;
  });
}

// Names of the chain's stages that have the option, and the index of the last of them.
struct Owners {
  std::string names;
  std::size_t count = 0;
  std::size_t stage = 0;
};

Owners OwnersOf(std::string_view name, StageTable table, const std::vector<StageSpec>& stages) {
  Owners owners;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageInfo& info = *FindStage(table, stages[i].id)->info;
    if (!HasOption(info, name)) continue;
    if (owners.count++ > 0) owners.names += " and ";
    owners.names += info.name;
    owners.stage = i;
  }
  return owners;
}

std::string AllOptionNames(StageTable table, const std::vector<StageSpec>& stages) {
  std::string text;
  for (const StageSpec& spec : stages) {
    const std::string names = OptionNames(*FindStage(table, spec.id)->info);
    if (!text.empty() && !names.empty()) text += ", ";
    text += names;
  }
  return text.empty() ? "it takes none" : "it takes " + text;
}

// The stage that an option, which may begin with `stage.`, belongs to; takes that off the option.
Result<std::size_t> StageOf(std::string_view& option, StageTable table,
                            const std::vector<StageSpec>& stages) {
  const std::string_view name = option.substr(0, option.find('='));
  const std::size_t dot = name.find('.');
  if (dot != std::string_view::npos) {
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (FindStage(table, stages[i].id)->info->name != name.substr(0, dot)) continue;
      option.remove_prefix(dot + 1);
      return i;
    }
    return ProfileFault("no stage " + Quoted(name.substr(0, dot)) + " for option " + Quoted(name));
  }
  const Owners owners = OwnersOf(name, table, stages);
  if (owners.count == 1) return owners.stage;
  if (owners.count == 0) {
    return ProfileFault("unknown option " + Quoted(name) + "; " + AllOptionNames(table, stages));
  }
  return ProfileFault("option " + Quoted(name) + " is of " + owners.names + ": write stage." +
                      std::string(name) + "=...");
}

}  // namespace

std::vector<std::string_view> SplitText(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t end = 0;
  do {
    end = text.find(separator);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  } while (end != std::string_view::npos);
  return parts;
}

Status SetOption(const StageInfo& info, std::string_view option, std::vector<bool>& is_set,
                 std::vector<ParameterValue>& values) {
  const std::size_t equals = option.find('=');
  if (equals == std::string_view::npos) {
    return ProfileFault("option " + Quoted(option) + " of " + Quoted(info.name) +
                        " lacks '=value'");
  }
  const std::string_view name = option.substr(0, equals);
  const std::vector<ParameterSlot> slots = ParameterSlots(info);
  bool known = false;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].info->name != name && slots[i].name() != name) continue;
    known = true;
    auto value = ParseValue(*slots[i].info, option.substr(equals + 1));
    if (!value) return ProfileFault(std::string(info.name) + ": " + value.error().message);
    if (is_set[i])
      return ProfileFault(std::string(info.name) + ": " + slots[i].name() + " is set twice");
    is_set[i] = true;
    values[i].value = *value;
  }
  if (!known) {
    const std::string names = OptionNames(info);
    return ProfileFault("unknown option " + Quoted(name) + " of " + Quoted(info.name) +
                        "; it takes " + (names.empty() ? "none" : names));
  }
  return {};
}

std::string OptionsText(const StageInfo& info, std::span<const ParameterValue> values,
                        std::span<const ParameterValue> usual) {
  std::string text;
  const auto add = [&](const std::string& name, const ParameterInfo& parameter, double value) {
    if (!text.empty()) text += ',';
    text += name + "=" + ValueText(parameter, value);
  };
  const std::vector<ParameterSlot> slots = ParameterSlots(info);
  if (slots.size() != values.size() || slots.size() != usual.size()) return text;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const double value = values[i].value;
    const bool both = slots[i].info->per_plane && slots[i].plane == PlaneKind::kKey &&
                      i + 1 < slots.size() && values[i + 1].value == value &&
                      (value != usual[i].value || value != usual[i + 1].value);
    if (both) {
      add(std::string(slots[i].info->name), *slots[i].info, value);
      ++i;
    } else if (value != usual[i].value) {
      add(slots[i].name(), *slots[i].info, value);
    }
  }
  return text;
}

Status SetChainOptions(std::string_view options, StageTable table, std::vector<StageSpec>& stages) {
  std::vector<std::vector<bool>> is_set;
  for (const StageSpec& spec : stages) is_set.emplace_back(spec.parameters.size(), false);
  for (std::string_view option : SplitText(options, ',')) {
    KVSERVE_ASSIGN(const std::size_t stage, StageOf(option, table, stages));
    const StageInfo& info = *FindStage(table, stages[stage].id)->info;
    KVSERVE_TRY(SetOption(info, option, is_set[stage], stages[stage].parameters));
  }
  return {};
}

std::string ChainOptionsText(const std::vector<StageSpec>& stages,
                             const std::vector<StageSpec>& usual, StageTable table) {
  std::string text;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageInfo& info = *FindStage(table, stages[i].id)->info;
    const std::string options = OptionsText(info, stages[i].parameters, usual[i].parameters);
    if (options.empty()) continue;
    for (const std::string_view option : SplitText(options, ',')) {
      if (!text.empty()) text += ',';
      const bool shared = OwnersOf(option.substr(0, option.find('=')), table, stages).count > 1;
      if (shared) text.append(info.name).append(".");
      text += option;
    }
  }
  return text;
}

}  // namespace kvserve
