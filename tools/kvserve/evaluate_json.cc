#include "evaluate_report.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;

Json IntervalJson(const Interval& interval) {
  return {interval.low, interval.high};
}

Json MetricJson(const MetricScore& score) {
  return {{"baseline", score.baseline},
          {"value", score.value},
          {"relative_accuracy", score.relative_accuracy},
          {"ci95", IntervalJson(score.ci95)}};
}

Json DatasetJson(const DatasetScore& set) {
  Json json = MetricJson(set);
  json["n"] = set.n;
  json["metric"] = set.metric;
  json["kl"] = set.kl;
  json["compression_ratio"] = set.compression_ratio;
  json["weak_baseline"] = set.weak_baseline;
  if (set.metric != "nll") json["value_ci95"] = IntervalJson(set.value_ci95);
  for (const auto& [name, metric] : set.more) json["metrics"][name] = MetricJson(metric);
  return json;
}

Json DatasetsJson(const std::map<std::string, DatasetScore>& sets) {
  Json json = Json::object();
  for (const auto& [name, set] : sets) json[name] = DatasetJson(set);
  return json;
}

Json TotalsJson(const ScoreTotals& totals) {
  return {{"n", totals.n},
          {"kl", totals.kl},
          {"kl_ci95", IntervalJson(totals.kl_ci95)},
          {"top1_agreement", totals.top1_agreement},
          {"nll_delta", totals.nll_delta},
          {"compression_ratio", totals.compression_ratio},
          {"wire_bytes", totals.wire_bytes},
          {"frames", totals.frames},
          {"drift_fallbacks", totals.drift_fallbacks},
          {"drift_reason", totals.drift_reason},
          {"raw_bytes", totals.raw_bytes},
          {"accuracy_lower_bound", totals.accuracy_lower_bound}};
}

Json WorkloadsJson(const std::map<std::string, WorkloadScore>& workloads) {
  Json json = Json::object();
  for (const auto& [name, workload] : workloads) {
    json[name] = TotalsJson(workload);
    json[name]["relative_accuracy"] = workload.relative_accuracy;
    json[name]["ci95"] = IntervalJson(workload.ci95);
  }
  return json;
}

Json RetrievalJson(const RetrievalScore& retrieval) {
  Json json = DatasetJson(retrieval);
  json["sets"] = DatasetsJson(retrieval.sets);
  return json;
}

Json GenerationJson(const GenerationScore& generation) {
  return {{"n", generation.n},
          {"tokens", generation.tokens},
          {"kl", generation.kl},
          {"kl_ci95", IntervalJson(generation.kl_ci95)},
          {"top1_agreement", generation.top1_agreement},
          {"equal_share", generation.equal_share},
          {"first_difference", generation.first_difference},
          {"same_texts", generation.same_texts}};
}

Json ContextsJson(const std::vector<ContextScore>& contexts) {
  Json json = Json::array();
  for (const ContextScore& context : contexts) {
    Json& block = json.emplace_back();
    block = {{"context_tokens", context.context_tokens},
             {"total", TotalsJson(context.total)},
             {"datasets", DatasetsJson(context.datasets)}};
    if (context.retrieval) block["retrieval"] = RetrievalJson(*context.retrieval);
  }
  return json;
}

Json TotalJson(const ProfileScore& score) {
  Json json = TotalsJson(score);
  json["profile"] = score.profile;
  json["encode_bytes_per_s"] = score.encode_bytes_per_s;
  json["decode_bytes_per_s"] = score.decode_bytes_per_s;
  json["seconds"] = score.seconds;
  json["kl_by_prompt"] = score.kl_by_prompt;
  return json;
}

void AddDetails(const ProfileScore& score, Json& json) {
  json["datasets"] = DatasetsJson(score.datasets);
  json["by_workload"] = WorkloadsJson(score.by_workload);
  json["contexts"] = ContextsJson(score.contexts);
  if (score.retrieval) json["retrieval"] = RetrievalJson(*score.retrieval);
  if (score.generation) json["generation"] = GenerationJson(*score.generation);
}

}  // namespace

Json EvaluationJson(std::span<const ProfileScore> scores) {
  Json document = {{"total", TotalJson(scores.front())}};
  AddDetails(scores.front(), document);
  if (scores.size() == 1) return document;
  for (const ProfileScore& score : scores) {
    Json profile = TotalJson(score);
    AddDetails(score, profile);
    document["profiles"].push_back(std::move(profile));
  }
  return document;
}

}  // namespace kvserve::tool
