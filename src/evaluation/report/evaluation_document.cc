#include "evaluation/report/evaluation_document.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/try.h"

namespace kvserve {
namespace {

using Json = nlohmann::json;

// What a profile must have to be shown: without it, it would look free of loss.
bool HasRateAndQuality(const Json& object) {
  const auto kl = object.find("kl");
  const auto ratio = object.find("compression_ratio");
  return kl != object.end() && kl->is_number() && ratio != object.end() && ratio->is_number() &&
         ratio->get<double>() > 0.0;
}

// Missing or other values become the default: a report shows what is there.
double Number(const Json& object, const char* key) {
  const auto field = object.find(key);
  return field != object.end() && field->is_number() ? field->get<double>() : 0.0;
}

std::size_t Count(const Json& object, const char* key) {
  const auto field = object.find(key);
  return field != object.end() && field->is_number_unsigned() ? field->get<std::size_t>() : 0;
}

std::string Text(const Json& object, const char* key) {
  const auto field = object.find(key);
  return field != object.end() && field->is_string() ? field->get<std::string>() : std::string();
}

Interval IntervalOf(const Json& object, const char* key, double otherwise) {
  const auto field = object.find(key);
  if (field == object.end() || !field->is_array() || field->size() != 2 ||
      !(*field)[0].is_number() || !(*field)[1].is_number()) {
    return {otherwise, otherwise};
  }
  return {(*field)[0].get<double>(), (*field)[1].get<double>()};
}

const Json* Object(const Json& object, const char* key) {
  const auto field = object.find(key);
  return field != object.end() && field->is_object() ? &*field : nullptr;
}

// Empty unless all of them are numbers.
std::vector<double> Numbers(const Json& object, const char* key) {
  const auto field = object.find(key);
  const auto is_number = [](const Json& value) { return value.is_number(); };
  if (field == object.end() || !field->is_array() || !std::ranges::all_of(*field, is_number)) {
    return {};
  }
  return field->get<std::vector<double>>();
}

std::optional<ReportedTexts> TextsOf(const Json& object) {
  const Json* workloads = Object(object, "by_workload");
  const Json* texts = workloads == nullptr ? nullptr : Object(*workloads, "text");
  if (texts == nullptr) return std::nullopt;
  const double kl = Number(*texts, "kl");
  return ReportedTexts{kl, IntervalOf(*texts, "kl_ci95", kl)};
}

std::optional<ReportedRetrieval> RetrievalOf(const Json& object) {
  const Json* found = Object(object, "retrieval");
  if (found == nullptr) return std::nullopt;
  ReportedRetrieval retrieval;
  retrieval.n = Count(*found, "n");
  retrieval.baseline = Number(*found, "baseline");
  retrieval.value = Number(*found, "value");
  retrieval.value_ci95 = IntervalOf(*found, "value_ci95", retrieval.value);
  const auto weak = found->find("weak_baseline");
  retrieval.weak_baseline = weak != found->end() && weak->is_boolean() && weak->get<bool>();
  return retrieval;
}

std::vector<ReportedContext> ContextsOf(const Json& object) {
  std::vector<ReportedContext> contexts;
  const auto list = object.find("contexts");
  if (list == object.end() || !list->is_array()) return contexts;
  for (const Json& entry : *list) {
    if (!entry.is_object()) continue;
    const Json* total = Object(entry, "total");
    if (total == nullptr || !HasRateAndQuality(*total)) continue;
    ReportedContext& context = contexts.emplace_back();
    context.context_tokens = static_cast<std::uint32_t>(Count(entry, "context_tokens"));
    context.kl = Number(*total, "kl");
    context.kl_ci95 = IntervalOf(*total, "kl_ci95", context.kl);
    context.compression_ratio = Number(*total, "compression_ratio");
    context.retrieval = RetrievalOf(entry);
  }
  return contexts;
}

// `total` has the figures, `details` contexts and retrieval.
ReportedProfile ProfileOf(const Json& total, const Json& details) {
  ReportedProfile profile;
  profile.profile = Text(total, "profile");
  profile.n = Count(total, "n");
  profile.kl = Number(total, "kl");
  profile.kl_ci95 = IntervalOf(total, "kl_ci95", profile.kl);
  profile.kl_by_prompt = Numbers(total, "kl_by_prompt");
  profile.texts = TextsOf(details);
  profile.top1_agreement = Number(total, "top1_agreement");
  profile.nll_delta = Number(total, "nll_delta");
  profile.compression_ratio = Number(total, "compression_ratio");
  profile.wire_bytes = Count(total, "wire_bytes");
  profile.encode_bytes_per_s = Number(total, "encode_bytes_per_s");
  profile.decode_bytes_per_s = Number(total, "decode_bytes_per_s");
  profile.retrieval = RetrievalOf(details);
  profile.contexts = ContextsOf(details);
  return profile;
}

// "model", "model (2)", ... where one model's runs were on different prompts.
void NumberAlike(std::vector<EvaluationDocument>& documents) {
  std::map<std::string, int> seen;
  for (EvaluationDocument& document : documents) {
    if (document.model.empty()) continue;
    const int number = ++seen[document.model];
    if (number > 1) document.model += " (" + std::to_string(number) + ")";
  }
}

}  // namespace

Result<EvaluationDocument> ParseEvaluationDocument(std::string_view text, const std::string& name) {
  const auto bad = [&](const char* what) {
    return MakeError(ErrorCode::kBadInput, name + ": " + what);
  };
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return bad("not a JSON document");
  const Json* total = Object(json, "total");
  if (total == nullptr || Text(*total, "profile").empty()) {
    return bad("not a document of kvserve evaluate --json: it has no total with a profile");
  }
  EvaluationDocument document;
  document.name = name;
  document.model = Text(json, "model");
  document.digest = Text(json, "prompts_digest");
  if (const Json* machine = Object(json, "machine")) document.machine = Text(*machine, "cpu");
  const auto list = json.find("profiles");
  constexpr const char* kNoFigures =
      "a profile lacks kl or compression_ratio, or they are no numbers";
  if (list == json.end() || !list->is_array()) {
    if (!HasRateAndQuality(*total)) return bad(kNoFigures);
    document.profiles.push_back(ProfileOf(*total, json));
    return document;
  }
  for (const Json& entry : *list) {
    if (!entry.is_object()) continue;
    if (!HasRateAndQuality(entry)) return bad(kNoFigures);
    document.profiles.push_back(ProfileOf(entry, entry));
  }
  if (document.profiles.empty()) return bad("it has no profiles");
  return document;
}

std::vector<EvaluationDocument> MergeRuns(std::vector<EvaluationDocument> documents) {
  std::vector<EvaluationDocument> merged;
  for (EvaluationDocument& document : documents) {
    const auto same = std::ranges::find_if(merged, [&](const EvaluationDocument& other) {
      return !document.model.empty() && other.model == document.model &&
             other.digest == document.digest;
    });
    if (same == merged.end()) {
      merged.push_back(std::move(document));
      continue;
    }
    for (ReportedProfile& profile : document.profiles) {
      const auto known =
          std::ranges::find(same->profiles, profile.profile, &ReportedProfile::profile);
      if (known == same->profiles.end()) {
        same->profiles.push_back(std::move(profile));
      } else {
        *known = std::move(profile);
      }
    }
  }
  NumberAlike(merged);
  return merged;
}

std::vector<bool> ParetoMembers(const std::vector<ReportedProfile>& profiles) {
  std::vector<bool> members;
  for (const ReportedProfile& own : profiles) {
    members.push_back(std::ranges::none_of(profiles, [&](const ReportedProfile& other) {
      const bool as_good = other.kl <= own.kl && other.compression_ratio >= own.compression_ratio;
      return as_good && (other.kl < own.kl || other.compression_ratio > own.compression_ratio);
    }));
  }
  return members;
}

}  // namespace kvserve
