// What a profile costs and keeps: the answer that searching and reporting work with, wherever it
// comes from (an engine, a table of earlier measurements, another process).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evaluation/bootstrap.h"
#include "kvserve/error.h"
#include "kvserve/profile.h"

namespace kvserve {

// All figures are paired: the same prompts with untouched KV through the same path are the
// reference. Every prompt counts the same; intervals are 95 %, over prompts, with a fixed seed.

// One measure. relative_accuracy is exp(baseline - value) of "nll" (the ratio of the likelihoods
// per token) and value / baseline of all others (RelativeValue).
struct MetricScore {
  double baseline = 0.0;  // of the reference
  double value = 0.0;     // with the profile
  double relative_accuracy = 1.0;
  Interval ci95{1.0, 1.0};  // of relative_accuracy
};

struct DatasetScore : MetricScore {
  std::size_t n = 0;  // prompts
  std::string metric = "nll";
  Interval value_ci95;  // of a share: Wilson; of "nll": none
  // The reference is too near to guessing to say how much a profile keeps: below half of the
  // answers in retrieval, not above chance in choices, below a tenth elsewhere.
  bool weak_baseline = false;
  double kl = 0.0;                          // nats per scored token
  double compression_ratio = 0.0;           // raw bytes / wire bytes
  std::map<std::string, MetricScore> more;  // the task's other measures, by name
};

struct ScoreTotals {
  std::size_t n = 0;
  double kl = 0.0;  // mean over prompts
  Interval kl_ci95;
  double top1_agreement = 0.0;
  double nll_delta = 0.0;  // nats per token of the reference answers
  std::uint64_t wire_bytes = 0;
  std::uint64_t raw_bytes = 0;
  std::size_t frames = 0;
  std::size_t drift_fallbacks = 0;  // of them that the fallback profile encoded
  std::string drift_reason;         // of the first of those
  double compression_ratio = 0.0;
  // exp(-kl_ci95.high), at most 1: a lower bound of the likelihood per token of the reference's own
  // words. KL rather than the texts' likelihood, because its noise is far smaller.
  double accuracy_lower_bound = 0.0;
};

// The likelihood of reference answers, over all sets of a class of workload.
struct WorkloadScore : ScoreTotals {
  double relative_accuracy = 1.0;
  Interval ci95{1.0, 1.0};
};

// Prompts made for the purpose: is what the context says still found?
struct RetrievalScore : DatasetScore {
  std::map<std::string, DatasetScore> sets;  // by kind
};

// Greedy text that the reference wrote, and what the profile's model thinks of it and writes
// itself.
struct GenerationScore {
  std::size_t n = 0;
  double tokens = 0.0;  // per text
  double kl = 0.0;      // along the reference's text
  Interval kl_ci95;
  double top1_agreement = 0.0;
  double equal_share = 1.0;       // of tokens, place by place, in its own text
  double first_difference = 0.0;  // place; `tokens` where there is none
  std::size_t same_texts = 0;
};

struct ContextScore {
  std::uint32_t context_tokens = 0;
  ScoreTotals total;
  std::map<std::string, DatasetScore> datasets;
  std::optional<RetrievalScore> retrieval;
};

// Totals are over the prompts of data sets, made ones apart; over the made ones when there are no
// others.
struct ProfileScore : ScoreTotals {
  std::string profile;
  std::vector<double> kl_by_prompt;              // what `kl` is the mean of, in one order always
  std::map<std::string, DatasetScore> datasets;  // by the records' set
  std::map<std::string, WorkloadScore> by_workload;  // made prompts are "retrieval"
  std::optional<RetrievalScore> retrieval;
  std::optional<GenerationScore> generation;
  std::vector<ContextScore> contexts;  // of texts and made prompts, by length
  double encode_bytes_per_s = 0.0;     // raw bytes over summed seconds, one thread
  double decode_bytes_per_s = 0.0;
  double seconds = 0.0;  // spent on this profile
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // One score per profile, in order. The prompts are the same for all.
  [[nodiscard]] virtual Result<std::vector<ProfileScore>> Evaluate(
      std::span<const Profile> profiles) = 0;
};

}  // namespace kvserve
