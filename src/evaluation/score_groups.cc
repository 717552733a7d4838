#include "evaluation/score_groups.h"

#include <algorithm>
#include <cmath>

namespace kvserve {
namespace {

constexpr std::uint64_t kBootstrapSeed = 20240229;
constexpr double kWeakRetrieval = 0.5;
constexpr double kWeakShare = 0.1;

double Ratio(double numerator, double denominator) {
  return denominator > 0 ? numerator / denominator : 0.0;
}

double PerRow(double sum, std::size_t rows) {
  return Ratio(sum, static_cast<double>(rows));
}

template <typename Field>
std::vector<double> Column(const PromptGroup& prompts, Field field) {
  std::vector<double> values;
  values.reserve(prompts.size());
  for (const PromptScore* prompt : prompts) values.push_back(field(*prompt));
  return values;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return Ratio(sum, static_cast<double>(values.size()));
}

double Kl(const PromptScore& prompt) {
  return PerRow(prompt.answers.kl, prompt.answers.rows);
}

// Of the likelihood of the reference answers, in nats per token.
double Gain(const PromptScore& prompt) {
  return PerRow(prompt.answers.reference_nll - prompt.answers.nll, prompt.answers.targets);
}

MetricScore MetricScoreOf(const std::string& metric, const std::vector<double>& baselines,
                          const std::vector<double>& values) {
  MetricScore score;
  score.baseline = Mean(baselines);
  score.value = Mean(values);
  if (metric != kNll) {
    score.relative_accuracy = RelativeValue(score.value, score.baseline);
    score.ci95 = BootstrapRelative(values, baselines, kBootstrapSeed);
    return score;
  }
  std::vector<double> gains;
  for (std::size_t i = 0; i < values.size(); ++i) gains.push_back(baselines[i] - values[i]);
  score.relative_accuracy = std::exp(Mean(gains));
  const Interval gain = BootstrapMean(gains, kBootstrapSeed);
  score.ci95 = {std::exp(gain.low), std::exp(gain.high)};
  return score;
}

// Measure number `index` of every prompt.
MetricScore MetricScoreOf(const PromptGroup& prompts, std::size_t index) {
  return MetricScoreOf(
      prompts.front()->grades[index].metric,
      Column(prompts, [&](const PromptScore& p) { return p.baseline[index].value; }),
      Column(prompts, [&](const PromptScore& p) { return p.grades[index].value; }));
}

bool IsWeak(const PromptGroup& prompts, const DatasetScore& score) {
  if (score.metric == kNll) return false;
  if (WorkloadOf(prompts.front()->task) == "retrieval") return score.baseline < kWeakRetrieval;
  if (prompts.front()->choices == 0) return score.baseline < kWeakShare;
  const double chance = Mean(Column(prompts, [](const PromptScore& p) {
    return 1.0 / static_cast<double>(std::max<std::size_t>(p.choices, 1));
  }));
  return WilsonShare(score.baseline, prompts.size()).low <= chance;
}

void FillDataset(const PromptGroup& prompts, DatasetScore& score) {
  const ScoreTotals totals = TotalsOf(prompts);
  const std::vector<Grade>& grades = prompts.front()->grades;
  score.n = prompts.size();
  score.kl = totals.kl;
  score.compression_ratio = totals.compression_ratio;
  static_cast<MetricScore&>(score) = MetricScoreOf(prompts, 0);
  score.metric = grades.front().metric;
  if (score.metric != kNll) score.value_ci95 = WilsonShare(score.value, prompts.size());
  score.weak_baseline = IsWeak(prompts, score);
  for (std::size_t i = 1; i < grades.size(); ++i) {
    score.more[grades[i].metric] = MetricScoreOf(prompts, i);
  }
}

}  // namespace

std::vector<double> KlByPrompt(const PromptGroup& prompts) {
  return Column(prompts, Kl);
}

ScoreTotals TotalsOf(const PromptGroup& prompts) {
  ScoreTotals totals;
  totals.n = prompts.size();
  for (const PromptScore* prompt : prompts) {
    totals.raw_bytes += prompt->raw_bytes;
    totals.wire_bytes += prompt->wire_bytes;
    totals.frames += prompt->frames;
    totals.drift_fallbacks += prompt->drift_fallbacks;
    if (totals.drift_reason.empty()) totals.drift_reason = prompt->drift_reason;
  }
  const std::vector<double> kls = KlByPrompt(prompts);
  totals.kl = Mean(kls);
  totals.kl_ci95 = BootstrapMean(kls, kBootstrapSeed);
  totals.top1_agreement = Mean(Column(
      prompts, [](const PromptScore& p) { return PerRow(p.answers.same_top, p.answers.rows); }));
  // Adding 0 makes 0 of -0.
  totals.nll_delta = Mean(Column(prompts, [](const PromptScore& p) { return -Gain(p); })) + 0.0;
  totals.compression_ratio =
      Ratio(static_cast<double>(totals.raw_bytes), static_cast<double>(totals.wire_bytes));
  totals.accuracy_lower_bound = std::exp(-totals.kl_ci95.high);
  return totals;
}

WorkloadScore WorkloadScoreOf(const PromptGroup& prompts) {
  WorkloadScore score;
  static_cast<ScoreTotals&>(score) = TotalsOf(prompts);
  const std::vector<double> gains = Column(prompts, Gain);
  score.relative_accuracy = std::exp(Mean(gains));
  const Interval gain = BootstrapMean(gains, kBootstrapSeed);
  score.ci95 = {std::exp(gain.low), std::exp(gain.high)};
  return score;
}

DatasetScore DatasetScoreOf(const PromptGroup& prompts) {
  DatasetScore score;
  FillDataset(prompts, score);
  return score;
}

RetrievalScore RetrievalScoreOf(const PromptGroup& prompts) {
  RetrievalScore score;
  FillDataset(prompts, score);
  for (const auto& [set, members] : GroupBy(prompts, [](const PromptScore& p) { return p.set; })) {
    score.sets[set] = DatasetScoreOf(members);
  }
  return score;
}

GenerationScore GenerationScoreOf(const PromptGroup& prompts) {
  GenerationScore score;
  score.n = prompts.size();
  std::vector<double> kls;
  double tokens = 0;
  double equal = 0;
  for (const PromptScore* prompt : prompts) {
    const PromptGeneration& generation = *prompt->generation;
    kls.push_back(PerRow(generation.along.kl, generation.along.rows));
    tokens += static_cast<double>(generation.tokens);
    equal += static_cast<double>(generation.equal_tokens);
    score.top1_agreement += PerRow(generation.along.same_top, generation.along.rows);
    score.first_difference += static_cast<double>(generation.first_difference);
    score.same_texts += generation.first_difference == generation.tokens ? 1 : 0;
  }
  const auto n = static_cast<double>(prompts.size());
  score.tokens = tokens / n;
  score.kl = Mean(kls);
  score.kl_ci95 = BootstrapMean(kls, kBootstrapSeed);
  score.top1_agreement /= n;
  score.equal_share = Ratio(equal, tokens);
  score.first_difference /= n;
  return score;
}

}  // namespace kvserve
