// The tables of the report, for HTML and Markdown alike.
#pragma once

#include <string>
#include <vector>

#include "evaluation/report/evaluation_document.h"

namespace kvserve {

struct ReportRow {
  bool member = false;             // shown in bold: of the Pareto set
  std::vector<std::string> cells;  // the profile comes first
};

struct ReportTable {
  std::vector<std::string> heading;
  std::vector<ReportRow> rows;
};

// Every profile, by rising ratio.
[[nodiscard]] ReportTable ProfileTable(const EvaluationDocument& document);
// Every other profile that was evaluated on the same prompts, compared prompt by prompt: bytes and
// KL as multiples, the difference of the KL, and on how many prompts it is lower. A row's `member`
// means fewer bytes and a lower KL at once. Without rows unless `against` is there.
[[nodiscard]] ReportTable PairedTable(const EvaluationDocument& document,
                                      const std::string& against);
// Every profile at every context length; without rows unless there are several lengths.
[[nodiscard]] ReportTable ContextTable(const EvaluationDocument& document);

}  // namespace kvserve
