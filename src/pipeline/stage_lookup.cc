#include "pipeline/stage_lookup.h"

#include <algorithm>
#include <vector>

namespace kvserve {
namespace {

template <typename Predicate>
const StageEntry* FindIf(StageTable table, Predicate predicate) {
  const auto entry = std::find_if(table.begin(), table.end(),
                                  [&](const StageEntry& row) { return predicate(*row.info); });
  return entry == table.end() ? nullptr : &*entry;
}

}  // namespace

std::string_view KindName(StageKind kind) {
  switch (kind) {
    case StageKind::kSelector: return "selector";
    case StageKind::kTransform: return "transform";
    case StageKind::kQuantizer: return "quantizer";
    case StageKind::kCodec: return "codec";
  }
  return "unknown";
}

const StageEntry* FindStage(StageTable table, std::uint16_t id) {
  return FindIf(table, [&](const StageInfo& info) { return info.id == id; });
}

const StageEntry* FindStage(StageTable table, StageKind kind, std::string_view name) {
  return FindIf(table,
                [&](const StageInfo& info) { return info.kind == kind && info.name == name; });
}

const StageEntry* FindStage(StageTable table, std::string_view name) {
  if (name == "none") return nullptr;
  return FindIf(table, [&](const StageInfo& info) { return info.name == name; });
}

std::string OrderFault(StageKind last, const StageInfo& next) {
  if (next.kind > last || (next.kind == last && last < StageKind::kQuantizer)) return {};
  return std::string(KindName(next.kind)) + " '" + std::string(next.name) + "' cannot follow a " +
         std::string(KindName(last)) +
         "; the order is selectors, transforms, one quantizer, one codec";
}

std::string StageNames(StageTable table) {
  std::vector<std::string_view> names;
  for (const StageEntry& entry : table) {
    if (std::find(names.begin(), names.end(), entry.info->name) == names.end()) {
      names.push_back(entry.info->name);
    }
  }
  std::string text;
  for (const std::string_view name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

std::string StageIdText(std::uint16_t id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 12; shift >= 0; shift -= 4) text += kDigits[(id >> shift) & 15];
  return text;
}

}  // namespace kvserve
