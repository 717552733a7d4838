#include "evaluation/report/rate_quality_tables.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/fixed_text.h"

namespace kvserve {
namespace {

std::string WithInterval(double value, const Interval& interval, int digits) {
  return Fixed(value, digits) + " (" + Fixed(interval.low, digits) + "-" +
         Fixed(interval.high, digits) + ")";
}

std::string RetrievalText(const std::optional<ReportedRetrieval>& retrieval) {
  if (!retrieval) return "-";
  std::string text = WithInterval(retrieval->value, retrieval->value_ci95, 2) + " of " +
                     Fixed(retrieval->baseline, 2);
  if (retrieval->weak_baseline) text += ", baseline too weak to judge";
  return text;
}

constexpr std::uint64_t kSeed = 1;

std::vector<double> Differences(const std::vector<double>& values,
                                const std::vector<double>& others) {
  std::vector<double> differences(values.size());
  std::ranges::transform(values, others, differences.begin(), std::minus<>());
  return differences;
}

}  // namespace

ReportTable ProfileTable(const EvaluationDocument& document) {
  const std::vector<ReportedProfile>& profiles = document.profiles;
  const std::vector<bool> members = ParetoMembers(profiles);
  std::vector<std::size_t> order(profiles.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return profiles[i].compression_ratio; });
  ReportTable table;
  table.heading = {"profile",     "ratio",       "wire bytes", "KL, nats per token (95 %)",
                   "KL of texts", "top-1",       "NLL delta",  "retrieval (95 %)",
                   "encode MB/s", "decode MB/s", "prompts"};
  for (const std::size_t i : order) {
    const ReportedProfile& profile = profiles[i];
    table.rows.push_back(
        {members[i],
         {profile.profile, Fixed(profile.compression_ratio, 2), std::to_string(profile.wire_bytes),
          WithInterval(profile.kl, profile.kl_ci95, 5),
          profile.texts ? WithInterval(profile.texts->kl, profile.texts->kl_ci95, 5) : "-",
          Fixed(profile.top1_agreement, 4), Fixed(profile.nll_delta, 5),
          RetrievalText(profile.retrieval), Fixed(profile.encode_bytes_per_s / 1e6, 0),
          Fixed(profile.decode_bytes_per_s / 1e6, 0), std::to_string(profile.n)}});
  }
  return table;
}

ReportTable PairedTable(const EvaluationDocument& document, const std::string& against) {
  ReportTable table;
  table.heading = {"against " + against, "bytes", "KL", "KL difference (95 %)", "lower KL on"};
  const auto other = std::ranges::find(document.profiles, against, &ReportedProfile::profile);
  if (other == document.profiles.end() || other->kl_by_prompt.empty()) return table;
  for (const ReportedProfile& own : document.profiles) {
    if (&own == &*other || own.kl_by_prompt.size() != other->kl_by_prompt.size()) continue;
    const std::vector<double> differences = Differences(own.kl_by_prompt, other->kl_by_prompt);
    const auto lower = std::ranges::count_if(differences, [](double d) { return d < 0; });
    table.rows.push_back(
        {own.kl < other->kl && own.compression_ratio > other->compression_ratio,
         {own.profile, Fixed(other->compression_ratio / own.compression_ratio, 3) + "x",
          Fixed(RelativeValue(own.kl, other->kl), 3) + "x",
          WithInterval(own.kl - other->kl, BootstrapMean(differences, kSeed), 5),
          std::to_string(lower) + " of " + std::to_string(differences.size())}});
  }
  return table;
}

ReportTable ContextTable(const EvaluationDocument& document) {
  ReportTable table;
  table.heading = {"profile", "context", "ratio", "KL, nats per token (95 %)", "retrieval (95 %)"};
  for (const ReportedProfile& profile : document.profiles) {
    if (profile.contexts.size() < 2) continue;
    for (const ReportedContext& context : profile.contexts) {
      table.rows.push_back(
          {false,
           {profile.profile, std::to_string(context.context_tokens),
            Fixed(context.compression_ratio, 2), WithInterval(context.kl, context.kl_ci95, 5),
            RetrievalText(context.retrieval)}});
    }
  }
  return table;
}

}  // namespace kvserve
