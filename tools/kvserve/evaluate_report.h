// Scores of profiles for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "evaluation/evaluator.h"

namespace kvserve::tool {

// {datasets, total, by_workload, contexts[], retrieval, generation} of the first profile, and
// profiles[] with the same of each, their totals' keys side by side with them, when there are
// several.
[[nodiscard]] nlohmann::json EvaluationJson(std::span<const ProfileScore> scores);

// Tables on standard output: totals, retrieval, contexts, data sets, generation.
void PrintEvaluation(std::span<const ProfileScore> scores);

}  // namespace kvserve::tool
