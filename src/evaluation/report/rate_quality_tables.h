// The tables of the report, for HTML and Markdown alike.
#pragma once

#include <string>
#include <vector>

#include "evaluation/report/evaluation_document.h"

namespace kvserve {

struct ReportRow {
  bool member = false;             // of the Pareto set
  std::vector<std::string> cells;  // the profile comes first
};

struct ReportTable {
  std::vector<std::string> heading;
  std::vector<ReportRow> rows;
};

// Every profile, by rising ratio.
[[nodiscard]] ReportTable ProfileTable(const EvaluationDocument& document);
// Every profile at every context length; without rows unless there are several lengths.
[[nodiscard]] ReportTable ContextTable(const EvaluationDocument& document);

}  // namespace kvserve
