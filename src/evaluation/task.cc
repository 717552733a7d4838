#include "evaluation/task.h"

namespace kvserve {
namespace {

struct TaskRow {
  Task task;
  std::string_view name;
  std::string_view workload;  // empty: not scored
};

constexpr TaskRow kTasks[] = {
    {Task::kLm, "lm", "text"},
    {Task::kCloze, "cloze", "text"},
    {Task::kChoice, "mc", "choice"},
    {Task::kChoicePrefix, "mc_prefix", "choice"},
    {Task::kMath, "math", "math"},
    {Task::kQa, "qa", "qa"},
    {Task::kMultiQa, "multi_qa", "qa"},
    {Task::kConversation, "conv_qa", "qa"},
    {Task::kSummary, "summ", "summary"},
    {Task::kCodeLine, "code_line", "code"},
    {Task::kCodeBody, "code_gen", "code"},
    {Task::kRetrieval, "kv", "retrieval"},
    {Task::kRetrievalAll, "kv_multi", "retrieval"},
    {Task::kPassage, "passage", ""},
    {Task::kPrefix, "prefix", ""},
};

const TaskRow& RowOf(Task task) {
  for (const TaskRow& row : kTasks) {
    if (row.task == task) return row;
  }
  return kTasks[0];
}

}  // namespace

std::string_view TaskName(Task task) {
  return RowOf(task).name;
}

std::optional<Task> ParseTask(std::string_view name) {
  for (const TaskRow& row : kTasks) {
    if (row.name == name) return row.task;
  }
  return std::nullopt;
}

bool IsScored(Task task) {
  return !RowOf(task).workload.empty();
}

std::string_view WorkloadOf(Task task) {
  return IsScored(task) ? RowOf(task).workload : "none";
}

}  // namespace kvserve
