// What kinds of records there are, how each is scored, and what workload it stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvserve {

enum class Task : std::uint8_t {
  kLm,            // "lm": likelihood of what follows in a text
  kCloze,         // "cloze": the last word
  kChoice,        // "mc": the likeliest of several answers
  kChoicePrefix,  // "mc_prefix": the beginning after which a text is likelier
  kMath,          // "math": likelihood of a worked solution
  kQa,            // "qa": token F1 of the greedy answer
  kMultiQa,       // "multi_qa": the same, several questions on one context
  kConversation,  // "conv_qa": the same, turn by turn
  kSummary,       // "summ": likelihood of a reference summary
  kCodeLine,      // "code_line": edit similarity of the greedy next line
  kCodeBody,      // "code_gen": likelihood of the canonical solution (nothing is executed)
  kRetrieval,     // "kv": the answer is in the greedy output
  kRetrievalAll,  // "kv_multi": the share of the answers that are
  kPassage,       // "passage": a pool of texts, not scored
  kPrefix,        // "prefix": beginnings of prompts, not scored
};

[[nodiscard]] std::string_view TaskName(Task task);
[[nodiscard]] std::optional<Task> ParseTask(std::string_view name);
[[nodiscard]] bool IsScored(Task task);

// Class of workload for which quality is kept apart: "text", "choice", "math", "qa", "summary",
// "code" or "retrieval"; "none" for tasks that are not scored.
[[nodiscard]] std::string_view WorkloadOf(Task task);

}  // namespace kvserve
