// Records of text data sets: JSON Lines, plain or gzipped.
#pragma once

#include <string>
#include <vector>

#include "kvserve/error.h"

namespace kvserve {

// One text to score. Fields of other tasks come with the task that reads them.
struct Record {
  std::string id;
  std::string set;
  std::string task;
  std::string text;
};

// Reads all records of a file. kBadInput names path and line (no JSON object, a field missing, not
// UTF-8 text, a damaged archive); kUnsupported names a task that this build does not score ("lm" is
// the only one); kResourceExhausted above 1 GiB of text.
[[nodiscard]] Result<std::vector<Record>> ReadRecords(const std::string& path);

}  // namespace kvserve
