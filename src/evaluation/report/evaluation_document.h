// What `kvserve evaluate --json` wrote, as far as a report shows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evaluation/bootstrap.h"
#include "kvserve/error.h"

namespace kvserve {

struct ReportedRetrieval {
  std::size_t n = 0;
  double baseline = 0.0;
  double value = 0.0;
  Interval value_ci95;
  bool weak_baseline = false;
};

struct ReportedContext {
  std::uint32_t context_tokens = 0;
  double kl = 0.0;
  Interval kl_ci95;
  double compression_ratio = 0.0;
  std::optional<ReportedRetrieval> retrieval;
};

struct ReportedTexts {
  double kl = 0.0;
  Interval kl_ci95;
};

struct ReportedProfile {
  std::string profile;
  std::size_t n = 0;
  double kl = 0.0;
  Interval kl_ci95;
  std::vector<double> kl_by_prompt;    // [n], or empty in documents of old
  std::optional<ReportedTexts> texts;  // of plain texts alone
  double top1_agreement = 0.0;
  double nll_delta = 0.0;
  double compression_ratio = 0.0;
  std::uint64_t wire_bytes = 0;
  double encode_bytes_per_s = 0.0;
  double decode_bytes_per_s = 0.0;
  std::optional<ReportedRetrieval> retrieval;
  std::vector<ReportedContext> contexts;
};

struct EvaluationDocument {
  std::string name;    // of the file
  std::string model;   // empty when the document does not say
  std::string digest;  // of model and prompts; empty in documents of old
  std::string machine;
  std::vector<ReportedProfile> profiles;
};

// kBadInput for text that is no such document; `name` stands for the file in the message. Keys that
// are not shown are ignored.
[[nodiscard]] Result<EvaluationDocument> ParseEvaluationDocument(std::string_view text,
                                                                 const std::string& name);

// Profiles of the same model and prompts (or, without a model, of the same file) from several
// documents together, in order; of a profile that occurs more than once the last counts.
[[nodiscard]] std::vector<EvaluationDocument> MergeRuns(std::vector<EvaluationDocument> documents);

// Which profiles no other one beats in both ratio and KL; [profile].
[[nodiscard]] std::vector<bool> ParetoMembers(const std::vector<ReportedProfile>& profiles);

}  // namespace kvserve
