#include "evaluation/profile_score.h"

#include <cmath>
#include <vector>

namespace kvserve {
namespace {

constexpr std::uint64_t kBootstrapSeed = 20240229;

double Ratio(double numerator, double denominator) {
  return denominator > 0 ? numerator / denominator : 0.0;
}

template <typename Field>
std::vector<double> Column(std::span<const PromptScore> prompts, Field field) {
  std::vector<double> values;
  values.reserve(prompts.size());
  for (const PromptScore& prompt : prompts) values.push_back(field(prompt));
  return values;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return Ratio(sum, static_cast<double>(values.size()));
}

double Kl(const PromptScore& prompt) {
  return prompt.score.kl;
}
double Gain(const PromptScore& prompt) {
  return prompt.score.reference_nll - prompt.score.nll;
}

DatasetScore SummarizeSet(std::span<const PromptScore> prompts) {
  DatasetScore set;
  set.n = prompts.size();
  std::uint64_t raw_bytes = 0;
  std::uint64_t wire_bytes = 0;
  for (const PromptScore& prompt : prompts) {
    raw_bytes += prompt.raw_bytes;
    wire_bytes += prompt.wire_bytes;
  }
  set.baseline = Mean(Column(prompts, [](const PromptScore& p) { return p.score.reference_nll; }));
  set.value = Mean(Column(prompts, [](const PromptScore& p) { return p.score.nll; }));
  const std::vector<double> gains = Column(prompts, Gain);
  set.relative_accuracy = std::exp(Mean(gains));
  const Interval gain = BootstrapMean(gains, kBootstrapSeed);
  set.ci95 = {std::exp(gain.low), std::exp(gain.high)};
  set.kl = Mean(Column(prompts, Kl));
  set.compression_ratio = Ratio(static_cast<double>(raw_bytes), static_cast<double>(wire_bytes));
  return set;
}

}  // namespace

ProfileScore Summarize(const std::string& profile, std::span<const PromptScore> prompts) {
  ProfileScore total;
  total.profile = profile;
  total.n = prompts.size();
  std::map<std::string, std::vector<PromptScore>> sets;
  double encode_s = 0;
  double decode_s = 0;
  for (const PromptScore& prompt : prompts) {
    sets[prompt.set].push_back(prompt);
    total.raw_bytes += prompt.raw_bytes;
    total.wire_bytes += prompt.wire_bytes;
    encode_s += prompt.encode_s;
    decode_s += prompt.decode_s;
  }
  for (const auto& [name, members] : sets) total.datasets[name] = SummarizeSet(members);
  const std::vector<double> kls = Column(prompts, Kl);
  total.kl = Mean(kls);
  total.kl_ci95 = BootstrapMean(kls, kBootstrapSeed);
  total.top1_agreement =
      Mean(Column(prompts, [](const PromptScore& p) { return p.score.top1_agreement; }));
  total.nll_delta = Mean(Column(prompts, [](const PromptScore& p) { return -Gain(p); })) + 0.0;
  const auto raw_bytes = static_cast<double>(total.raw_bytes);
  total.compression_ratio = Ratio(raw_bytes, static_cast<double>(total.wire_bytes));
  total.encode_bytes_per_s = Ratio(raw_bytes, encode_s);
  total.decode_bytes_per_s = Ratio(raw_bytes, decode_s);
  total.accuracy_lower_bound = std::exp(-total.kl_ci95.high);
  return total;
}

}  // namespace kvserve
