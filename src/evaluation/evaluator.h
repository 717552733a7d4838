// What a profile costs and keeps: the answer that searching and reporting work with, wherever it
// comes from (an engine, a table of earlier measurements, another process).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "evaluation/bootstrap.h"
#include "kvserve/error.h"
#include "kvserve/profile.h"

namespace kvserve {

// All figures are paired: the same prompts with untouched KV through the same path are the
// reference.
struct DatasetScore {
  std::size_t n = 0;           // prompts
  std::string metric = "nll";  // nats per token of the text itself
  double baseline = 0.0;       // of the reference
  double value = 0.0;          // with the profile
  double relative_accuracy =
      1.0;          // exp(baseline - value): the ratio of the texts' likelihoods per token
  Interval ci95;    // of relative_accuracy, over prompts
  double kl = 0.0;  // nats per token
  double compression_ratio = 0.0;  // raw bytes / wire bytes
};

struct ProfileScore {
  std::string profile;
  std::map<std::string, DatasetScore> datasets;  // by the records' set
  std::size_t n = 0;
  double kl = 0.0;  // mean over prompts
  Interval kl_ci95;
  double top1_agreement = 0.0;
  double nll_delta = 0.0;
  std::uint64_t wire_bytes = 0;
  std::uint64_t raw_bytes = 0;
  double compression_ratio = 0.0;
  double encode_bytes_per_s = 0.0;  // raw bytes over summed seconds, one thread
  double decode_bytes_per_s = 0.0;
  // exp(-kl_ci95.high), at most 1: a lower bound of the likelihood per token of the reference's own
  // words. KL rather than the texts' likelihood, because its noise is far smaller.
  double accuracy_lower_bound = 0.0;
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // One score per profile, in order. The prompts are the same for all.
  [[nodiscard]] virtual Result<std::vector<ProfileScore>> Evaluate(
      std::span<const Profile> profiles) = 0;
};

}  // namespace kvserve
