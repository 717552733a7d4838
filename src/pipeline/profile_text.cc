#include "pipeline/profile_text.h"

#include <algorithm>
#include <vector>

#include "base/try.h"
#include "pipeline/profile_fault.h"
#include "pipeline/profile_options.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"

namespace kvserve {
namespace {

constexpr std::string_view kNone = "none";
constexpr std::string_view kLossless = "lossless";
constexpr std::string_view kLosslessCodec = "rans";

Result<StageSpec> ParseStage(const StageInfo& info, std::string_view options, bool has_options) {
  StageSpec spec{info.id, info.version, DefaultValues(info)};
  if (!has_options) return spec;
  std::vector<bool> is_set(spec.parameters.size(), false);
  for (const std::string_view option : SplitText(options, ',')) {
    KVSERVE_TRY(SetOption(info, option, is_set, spec.parameters));
  }
  return spec;
}

// The stages in the text; `none` segments give nothing.
Result<std::vector<StageSpec>> ParseSegments(std::string_view text, StageTable table) {
  std::vector<StageSpec> stages;
  StageKind last = StageKind::kSelector;
  for (const std::string_view segment : SplitText(text, '|')) {
    if (segment == kNone) continue;
    const std::size_t colon = segment.find(':');
    const std::string_view name = segment.substr(0, colon);
    if (segment.empty()) return ProfileFault("a stage name is empty in " + Quoted(text));
    if (name == kNone) return ProfileFault("'none' takes no options");
    const StageEntry* entry = FindStage(table, name);
    if (entry == nullptr) {
      return ProfileFault("unknown stage " + Quoted(name) + "; there are " + StageNames(table));
    }
    if (auto fault = OrderFault(last, *entry->info); !fault.empty()) return ProfileFault(fault);
    last = entry->info->kind;
    const bool has_options = colon != std::string_view::npos;
    KVSERVE_ASSIGN(
        StageSpec spec,
        ParseStage(*entry->info, has_options ? segment.substr(colon + 1) : "", has_options));
    stages.push_back(std::move(spec));
  }
  return stages;
}

Status AddDefault(StageTable table, StageKind kind, std::string_view name,
                  std::vector<StageSpec>& stages, std::ptrdiff_t at) {
  const StageEntry* entry = FindStage(table, kind, name);
  if (entry == nullptr) {
    return ProfileFault("this build has no " + std::string(KindName(kind)) + " " + Quoted(name));
  }
  stages.insert(stages.begin() + at,
                {entry->info->id, entry->info->version, DefaultValues(*entry->info)});
  return {};
}

bool Has(const std::vector<StageSpec>& stages, StageTable table, StageKind kind) {
  return std::any_of(stages.begin(), stages.end(), [&](const StageSpec& spec) {
    return FindStage(table, spec.id)->info->kind == kind;
  });
}

std::string StageText(const StageInfo& info, const StageSpec& spec) {
  const std::string options = OptionsText(info, spec.parameters, DefaultValues(info));
  return std::string(info.name) + (options.empty() ? "" : ":" + options);
}

}  // namespace

Result<Profile> ParseProfileText(std::string_view text, StageTable table) {
  Profile profile;
  KVSERVE_ASSIGN(profile.stages, ParseSegments(text, table));
  const bool lossless_alone = profile.stages.size() == 1 && text.find('|') == text.npos &&
                              FindStage(table, profile.stages[0].id)->info->name == kLossless;
  const bool has_codec = Has(profile.stages, table, StageKind::kCodec);
  if (!Has(profile.stages, table, StageKind::kQuantizer)) {
    KVSERVE_TRY(
        AddDefault(table, StageKind::kQuantizer, kNone, profile.stages,
                   static_cast<std::ptrdiff_t>(profile.stages.size()) - (has_codec ? 1 : 0)));
  }
  if (!has_codec) {
    KVSERVE_TRY(AddDefault(table, StageKind::kCodec, lossless_alone ? kLosslessCodec : kNone,
                           profile.stages, static_cast<std::ptrdiff_t>(profile.stages.size())));
  }
  profile.name = ProfileText(profile.stages, table);
  return profile;
}

std::string ProfileText(const std::vector<StageSpec>& stages, StageTable table) {
  std::vector<std::string> parts;
  std::string codec(kNone);
  for (const StageSpec& spec : stages) {
    const StageEntry* entry = FindStage(table, spec.id);
    if (entry == nullptr) {
      parts.push_back("stage-" + StageIdText(spec.id));
      continue;
    }
    const std::string text = StageText(*entry->info, spec);
    if (entry->info->kind == StageKind::kCodec) {
      codec = text;
    } else if (text != kNone) {
      parts.push_back(text);
    }
  }
  const bool lossless = parts.size() == 1 && SplitText(parts[0], ':')[0] == kLossless;
  if (codec != (lossless ? kLosslessCodec : kNone) || parts.empty()) parts.push_back(codec);
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += '|';
    text += part;
  }
  return text;
}

}  // namespace kvserve
