// Records of text data sets: JSON Lines, plain or gzipped.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "evaluation/task.h"
#include "kvserve/error.h"

namespace kvserve {

struct Question {
  std::string text;
  std::vector<std::string> answers;  // at least one, each right
};

// One record. What a task does not have is empty.
struct Record {
  std::string id;  // "<set>/<row>"
  std::string set;
  Task task = Task::kLm;
  std::string text;                   // kLm, kPassage, kPrefix
  std::string context;                // what the questions are about
  std::vector<Question> questions;    // one, or several that share the context
  std::string solution;               // kMath: worked text, may be missing
  std::vector<std::string> choices;   // kChoice
  std::vector<std::string> prefixes;  // kChoicePrefix: the two beginnings
  std::string continuation;           // kChoicePrefix
  std::size_t gold = 0;               // index of the right choice or prefix
};

// Reads all records of a file. Fields that the task does not use are ignored. kBadInput names path
// and line (no JSON object, a field missing or of the wrong type, not UTF-8 text, a damaged
// archive); kUnsupported a task that this build does not know; kResourceExhausted above 1 GiB of
// text.
[[nodiscard]] Result<std::vector<Record>> ReadRecords(const std::string& path);
// The same from the text of a file; `path` stands for it in errors.
[[nodiscard]] Result<std::vector<Record>> ParseRecords(std::string_view text,
                                                       const std::string& path);

// Everything of a record that a model would read, as one text: context, questions, first answers.
[[nodiscard]] std::string PlainText(const Record& record);

}  // namespace kvserve
