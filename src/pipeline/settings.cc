#include "pipeline/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace kvserve {
namespace {

std::string NumberText(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

tl::unexpected<Error> WrongValue(const ParameterInfo& info, std::string_view text) {
  return MakeError(ErrorCode::kInvalidArgument, std::string(info.name) + "=" + std::string(text) +
                                                    " should be " + RangeText(info));
}

}  // namespace

std::string ParameterSlot::name() const {
  if (!info->per_plane) return std::string(info->name);
  return (plane == PlaneKind::kKey ? "k_" : "v_") + std::string(info->name);
}

std::vector<ParameterSlot> ParameterSlots(const StageInfo& info) {
  std::vector<ParameterSlot> slots;
  for (const ParameterInfo& parameter : info.parameters) {
    slots.push_back({&parameter, parameter.id, PlaneKind::kKey, parameter.default_k});
    if (parameter.per_plane) {
      slots.push_back({&parameter, static_cast<std::uint8_t>(parameter.id + 1), PlaneKind::kValue,
                       parameter.default_v});
    }
  }
  std::sort(slots.begin(), slots.end(),
            [](const ParameterSlot& a, const ParameterSlot& b) { return a.id < b.id; });
  return slots;
}

std::vector<ParameterValue> DefaultValues(const StageInfo& info) {
  std::vector<ParameterValue> values;
  for (const ParameterSlot& slot : ParameterSlots(info)) {
    values.push_back({slot.id, slot.default_value});
  }
  return values;
}

std::string RangeText(const ParameterInfo& info) {
  if (info.type == ParameterType::kBoolean) return "true or false";
  if (info.type != ParameterType::kChoice) {
    const char* kind = info.type == ParameterType::kInteger ? "an integer in " : "in ";
    return kind + NumberText(info.low) + ".." + NumberText(info.high);
  }
  std::string text = "one of ";
  for (std::size_t i = 0; i < info.choices.size(); ++i) {
    if (i > 0) text += ", ";
    text += info.choices[i];
  }
  return text;
}

std::string ValueText(const ParameterInfo& info, double value) {
  if (info.type == ParameterType::kBoolean) return value != 0.0 ? "true" : "false";
  if (info.type == ParameterType::kChoice && ValueFits(info, value)) {
    return std::string(info.choices[static_cast<std::size_t>(value)]);
  }
  return NumberText(value);
}

Result<double> ParseValue(const ParameterInfo& info, std::string_view text) {
  if (info.type == ParameterType::kChoice) {
    const auto choice = std::find(info.choices.begin(), info.choices.end(), text);
    if (choice == info.choices.end()) return WrongValue(info, text);
    return static_cast<double>(choice - info.choices.begin());
  }
  if (info.type == ParameterType::kBoolean) {
    if (text == "true" || text == "1") return 1.0;
    if (text == "false" || text == "0") return 0.0;
    return WrongValue(info, text);
  }
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !ValueFits(info, value)) {
    return WrongValue(info, text);
  }
  return value + 0.0;  // -0 would be other bytes for the same setting
}

bool ValueFits(const ParameterInfo& info, double value) {
  double low = info.low;
  double high = info.high;
  if (info.type == ParameterType::kBoolean) {
    low = 0.0;
    high = 1.0;
  } else if (info.type == ParameterType::kChoice) {
    low = 0.0;
    high = static_cast<double>(info.choices.size()) - 1.0;
  }
  if (!(value >= low && value <= high)) return false;  // NaN is not in range either
  return info.type == ParameterType::kReal || value == std::floor(value);
}

Result<Settings> CheckedSettings(const StageInfo& info, std::uint8_t version,
                                 std::span<const ParameterValue> values, ErrorCode fault) {
  const std::string stage = "stage " + std::string(info.name) + ": ";
  std::vector<ParameterValue> complete;
  std::size_t taken = 0;
  for (const ParameterSlot& slot : ParameterSlots(info)) {
    if (slot.info->since > version) {
      complete.push_back({slot.id, slot.default_value});
      continue;
    }
    if (taken == values.size()) {
      return MakeError(fault, stage + "parameter " + slot.name() + " (" + std::to_string(slot.id) +
                                  ") is missing");
    }
    const ParameterValue& value = values[taken++];
    if (value.id != slot.id) {
      return MakeError(fault, stage + "parameter id " + std::to_string(value.id) + " where " +
                                  slot.name() + " (" + std::to_string(slot.id) + ") should be");
    }
    if (!ValueFits(*slot.info, value.value)) {
      return MakeError(fault, stage + slot.name() + "=" + NumberText(value.value) + " should be " +
                                  RangeText(*slot.info));
    }
    complete.push_back(value);
  }
  if (taken < values.size()) {
    return MakeError(fault, stage + std::to_string(values.size()) + " parameters where version " +
                                std::to_string(version) + " has " + std::to_string(taken));
  }
  return Settings(info, std::move(complete), version);
}

}  // namespace kvserve
