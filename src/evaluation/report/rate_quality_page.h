// Rate and quality of evaluated profiles as one HTML page, and as a Markdown table.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "evaluation/report/evaluation_document.h"

namespace kvserve {

// Per model: KL against ratio and retrieval against ratio with the Pareto members named, a table
// with intervals, one by context length where there are several, and one for each profile of
// `against` that all others are compared with prompt by prompt. No scripts and no other files; all
// text is escaped.
[[nodiscard]] std::string RateQualityPage(std::span<const EvaluationDocument> documents,
                                          std::span<const std::string> against = {});

struct PlotFile {
  std::string name;  // of the model and what is shown, as "smollm2-135m-kl.svg"
  std::string svg;
};

// The plots of the page, each in a file of its own.
[[nodiscard]] std::vector<PlotFile> RateQualityPlots(std::span<const EvaluationDocument> documents);

// The same tables in Markdown; Pareto members are bold.
[[nodiscard]] std::string RateQualityMarkdown(std::span<const EvaluationDocument> documents,
                                              std::span<const std::string> against = {});

}  // namespace kvserve
